"""The one-dimensional regression data of Snelson and Ghahramani: 200 noisy points of a smooth function.

Source: Snelson, Ghahramani, Sparse Gaussian Processes using Pseudo-inputs, 2005; files in
www.gatsby.ucl.ac.uk/~snelson/SPGP_dist.zip.
"""

import os
import warnings
from pathlib import Path

import numpy as np

from seqdec.data.folders import data_folder
from seqdec.persistence import located, reading

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
