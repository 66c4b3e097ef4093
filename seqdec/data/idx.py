"""The idx format of MNIST, plain or gzipped.

A magic number (two zero bytes, type code, number of axes), the axes' lengths as big-endian 32-bit integers, and
big-endian values in row-major order. Source: LeCun, Cortes, Burges, the MNIST database.
"""

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqdec.persistence import located

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"


class Split(NamedTuple):
    """Labeled images."""

    images: np.ndarray
    """(n, ...) uint8; MNIST: (n, 28, 28)."""
    labels: np.ndarray
    """(n,) int32 from 0"""


class Dataset(NamedTuple):
    """The published halves of a data set."""

    train: Split
    """Training examples."""
    test: Split
    """Test examples."""


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an idx file, in native byte order; gzip is recognized by content.

    Raises FileNotFoundError, and ValueError naming file, fault and remedy.
    """
    path = located(path)
    content = _decompress(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES:
        raise ValueError(_damaged(path, f"it is not an idx file: it starts with {content[:4].hex(' ') or 'nothing'}"))
    dtype, num_axes = np.dtype(_DTYPES[content[2]]), content[3]
    header = 4 + 4 * num_axes
    if len(content) < header:
        raise ValueError(_damaged(path, f"its header of {header} bytes ends after {len(content)}"))
    shape = tuple(np.frombuffer(content, ">u4", num_axes, offset=4).tolist())
    size = math.prod(shape) * dtype.itemsize
    if len(content) - header != size:
        raise ValueError(_damaged(path, f"shape {shape} needs {size} bytes; it holds {len(content) - header}"))
    return np.frombuffer(content, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))


def load_idx_folder(path: str | os.PathLike[str]) -> Dataset:
    """The data set in the four idx files of a folder, plain ones before gzipped.

    Names contain "train-images", "train-labels", "t10k-images" (or "test-images") and "t10k-labels" (or "test-labels").

    Raises FileNotFoundError, and ValueError for a damaged or ambiguous file, or labels that do not fit the images.
    """
    folder = located(path)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no such folder: {folder}; put train-images, train-labels, t10k-images, t10k-labels there"
        )
    return Dataset(_read_split(folder, ("train",)), _read_split(folder, ("t10k", "test")))


def _read_split(folder: Path, prefixes: tuple[str, ...]) -> Split:
    images_path, labels_path = _find(folder, prefixes, "images"), _find(folder, prefixes, "labels")
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.dtype != np.uint8 or images.ndim < 2 or images.size == 0:
        raise ValueError(f"{images_path}: images must be uint8 (n, ...) with n > 0; got {images.dtype} {images.shape}")
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{labels_path}: {images.shape[0]} images need as many integer labels; got {labels.dtype} {labels.shape}"
        )
    if labels.min() < 0:
        raise ValueError(f"{labels_path}: labels must count from 0; the least is {labels.min()}")
    return Split(images, labels.astype(np.int32))


def _find(folder: Path, prefixes: tuple[str, ...], part: str) -> Path:
    wanted = [f"{prefix}-{part}" for prefix in prefixes]
    visible = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    found = {path.name: path for path in visible if any(name in path.name for name in wanted)}
    found = {name: path for name, path in found.items() if name.removesuffix(".gz") == name or name[:-3] not in found}
    if len(found) > 1:
        raise ValueError(f"{folder} has several files for {wanted[0]}: {', '.join(sorted(found))}; keep one")
    if not found:
        raise FileNotFoundError(f"{folder} has no file for {wanted[0]}: put {wanted[0]}-idx?-ubyte (or its .gz) there")
    return next(iter(found.values()))


def _decompress(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(_damaged(path, f"its gzip stream is truncated or damaged ({error})")) from error


def _damaged(path: Path, reason: str) -> str:
    return f"cannot read {path}: {reason}. Delete the file and copy or download it again."
