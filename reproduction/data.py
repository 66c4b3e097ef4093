"""CIFAR-10: 50,000 + 10,000 color images of 32 x 32 pixels, from disk or downloaded.

Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; the binary version, in which an image
is one byte for the label and 3,072 for red, green and blue, each row by row.
"""

import os
import warnings
from pathlib import Path

import numpy as np

from seqdec.data.files import data_folder, downloader
from seqdec.data.idx import Dataset, Split
from seqdec.persistence import located, reading

_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_TEST = "test_batch.bin"
_EXCERPT = "train_first4000.npz"
_RECORD = 1 + 3 * 32 * 32


def load_cifar10(root: str | os.PathLike[str] | None = None) -> Dataset:
    """Images of ten classes of objects: images (n, 32, 32, 3) uint8, labels 0 to 9.

    Read from `root`, by default from $SEQDEC_DATA/cifar10; without that folder, downloaded once, checked against its
    SHA-256, and kept in the user's cache folder. The folder holds the files of the binary version, at any depth, or
    train_first4000.npz (x, y), an excerpt of 4,000 training images, of which the last 1,000 are then the test set.

    Raises FileNotFoundError with instructions if the files are neither there nor downloadable, and ValueError naming
    the file if one is damaged.
    """
    kept = data_folder("cifar10")
    folder = located(root) if root is not None else kept if kept and kept.is_dir() else _download()
    found = {path.name: path for path in folder.rglob("*") if path.name in (*_TRAIN, _TEST, _EXCERPT)}
    if set(found) >= {*_TRAIN, _TEST}:
        parts = [_read(found[name]) for name in _TRAIN]
        whole = Split(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        return Dataset(whole, _read(found[_TEST]))
    if _EXCERPT in found:
        return _excerpt(found[_EXCERPT])
    raise FileNotFoundError(f"{folder} has no CIFAR-10: unpack {_URL} there")


def _read(path: Path) -> Split:
    """One file of the binary version."""
    content = np.fromfile(path, np.uint8)
    if not content.size or content.size % _RECORD or content[::_RECORD].max() > 9:
        raise ValueError(f"{path} is damaged: it must hold records of {_RECORD} bytes with labels 0 to 9; replace it")
    records = content.reshape(-1, _RECORD)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Split(np.ascontiguousarray(images), records[:, 0].astype(np.int32))


def _excerpt(path: Path) -> Dataset:
    """The excerpt, its last quarter as the test set."""
    with reading(path, "replace it"), path.open("rb") as content, np.load(content, allow_pickle=False) as file:
        images, labels = file["x"], file["y"].astype(np.int32)
    if images.shape[1:] != (32, 32, 3) or images.dtype != np.uint8 or labels.shape != images.shape[:1]:
        raise ValueError(f"{path}: x must be uint8 (n, 32, 32, 3) and y (n,); got {images.dtype} {images.shape}")
    if len(images) < 4 or labels.min() < 0 or labels.max() > 9:
        raise ValueError(f"{path}: it must hold four or more images with labels 0 to 9; replace it")
    split = len(images) * 3 // 4
    return Dataset(Split(images[:split], labels[:split]), Split(images[split:], labels[split:]))


def _download() -> Path:
    """Download and unpack the binary version into the cache; -> its folder."""
    import pooch

    folder = Path(pooch.os_cache("seqdec")) / "cifar10"
    try:
        pooch.retrieve(
            _URL,
            f"sha256:{_SHA256}",
            "cifar-10-binary.tar.gz",
            folder,
            processor=pooch.Untar(),
            downloader=downloader(30.0),
        )
    except (ValueError, OSError) as error:
        raise FileNotFoundError(
            f"CIFAR-10 cannot be downloaded from {_URL} ({error}). Without internet, set the environment variable "
            "SEQDEC_DATA to a folder and unpack that file into its subfolder cifar10"
        ) from error
    return folder


_FILES = ("train_inputs", "train_outputs")
_ARCHIVE = "snelson.npz"


def load_snelson(root: str | os.PathLike[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and responses, (200,) each, in the order of the files.

    Read from `root`, by default from $SEQDEC_DATA/snelson: the text files train_inputs and train_outputs of the
    authors, or snelson.npz (x_train, y_train).

    Raises FileNotFoundError with instructions if they are not there, and ValueError naming the folder if they are
    damaged.
    """
    folder = (data_folder("snelson") or located("snelson")) if root is None else located(root)
    if all((folder / name).is_file() for name in _FILES):
        inputs, responses = (_numbers(folder / name) for name in _FILES)
    elif (folder / _ARCHIVE).is_file():
        path = folder / _ARCHIVE
        with reading(path, "replace it"), path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            inputs, responses = file["x_train"].astype(float).ravel(), file["y_train"].astype(float).ravel()
    else:
        raise FileNotFoundError(
            f"{folder} holds no data of Snelson: set the environment variable SEQDEC_DATA to a folder and put "
            f"{' and '.join(_FILES)} of www.gatsby.ucl.ac.uk/~snelson/SPGP_dist.zip into its subfolder snelson"
        )
    if inputs.shape != responses.shape or not inputs.size or not np.isfinite(inputs + responses).all():
        raise ValueError(f"{folder} is damaged: {inputs.shape} inputs and {responses.shape} responses, or not finite")
    return inputs, responses


def _numbers(path: Path) -> np.ndarray:
    with reading(path, "replace it"), path.open() as lines, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the file is empty, which is refused
        return np.loadtxt(lines).ravel()
