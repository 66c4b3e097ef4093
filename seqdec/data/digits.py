"""The handwritten digits of scikit-learn: 1,797 images of 8 x 8 pixels.

Source: Alpaydin, Kaynak, Optical Recognition of Handwritten Digits, UCI machine learning repository, 1998.
"""

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from seqdec.data.idx import Split
from seqdec.persistence import reading


def load_digits() -> Split:
    """Images (1797, 64) uint8 from 0 to 16, labels 0 to 9."""
    file = _file()
    if file.is_file():
        with reading(file, "install scikit-learn again"), gzip.open(file, "rt") as lines:
            rows = np.loadtxt(lines, np.uint8, delimiter=",")
        return Split(rows[:, :-1], rows[:, -1].astype(np.int32))
    from sklearn import datasets

    images, labels = map(np.asarray, datasets.load_digits(return_X_y=True))
    return Split(images.astype(np.uint8), labels.astype(np.int32))


def _file() -> Path:
    package = importlib.util.find_spec("sklearn")
    folders = package.submodule_search_locations if package else None
    return Path(folders[0] if folders else "", "datasets", "data", "digits.csv.gz")
