"""MNIST and Fashion-MNIST: 60,000 + 10,000 labeled images of 28 x 28 pixels.

Sources: LeCun, Cortes, Burges, the MNIST database; Xiao, Rasul, Vollgraf, Fashion-MNIST, 2017.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from seqdec.data.files import data_folder, downloader
from seqdec.data.idx import Dataset, load_idx_folder
from seqdec.persistence import located

_TIMEOUT = 30.0  # seconds until the next mirror is tried
_ROUNDS = 2  # attempts per mirror


class Source(NamedTuple):
    """Mirrors and files of a data set."""

    name: str
    """its folder"""
    mirrors: tuple[str, ...]
    """URL prefixes by preference"""
    sha256: Mapping[str, str]
    """file name -> SHA-256"""


MNIST = Source(
    "mnist",
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://raw.githubusercontent.com/fgnt/mnist/master/",
    ),
    {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)

FASHION_MNIST = Source(
    "fashion-mnist",
    (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)


def load_mnist(root: str | os.PathLike[str] | None = None) -> Dataset:
    """Handwritten digits: images (60000, 28, 28) and (10000, 28, 28) uint8, labels 0 to 9.

    Read from `root`, by default $SEQDEC_DATA/mnist, else downloaded once, checked by SHA-256 and cached.

    Raises FileNotFoundError with instructions, and ValueError naming a damaged file.
    """
    return _load(MNIST, root)


def load_fashion_mnist(root: str | os.PathLike[str] | None = None) -> Dataset:
    """Clothes, in $SEQDEC_DATA/fashion-mnist or otherwise as `load_mnist`.

    Labels: T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot.
    """
    return _load(FASHION_MNIST, root)


def _load(source: Source, root: str | os.PathLike[str] | None) -> Dataset:
    kept = data_folder(source.name)
    folder = located(root) if root is not None else kept if kept and kept.is_dir() else _download(source)
    data = load_idx_folder(folder)
    for half, count in (("train", 60_000), ("test", 10_000)):
        shape = getattr(data, half).images.shape
        if shape != (count, 28, 28):
            raise ValueError(f"{folder} is not {source.name}: {half} images must be {(count, 28, 28)}; got {shape}")
        if (highest := int(getattr(data, half).labels.max())) > 9:
            raise ValueError(f"{folder} is damaged: {half} labels must be 0 to 9; got {highest}. Copy it again")
    return data


def _download(source: Source) -> Path:
    import pooch

    folder = Path(pooch.os_cache("seqdec")) / source.name
    for name in source.sha256:
        _fetch(source, name, folder)
    return folder


def _fetch(source: Source, name: str, folder: Path) -> None:
    import pooch

    download = downloader(_TIMEOUT)
    failures = {}
    for mirror in source.mirrors * _ROUNDS:
        try:
            pooch.retrieve(mirror + name, f"sha256:{source.sha256[name]}", name, folder, downloader=download)
            return
        except (ValueError, OSError) as error:  # wrong checksum; network error, or unwritable cache
            failures[mirror] = f"{type(error).__name__}: {error}".splitlines()[0]
    tried = "\n".join(f"  {mirror}{name}: {reason}" for mirror, reason in failures.items())
    raise FileNotFoundError(
        f"{source.name} cannot be downloaded. Without internet, set the environment variable SEQDEC_DATA to a folder "
        f"and put these files into its subfolder {source.name}: {', '.join(source.sha256)}. Tried:\n{tried}"
    )
