"""Tuning of a neural network by Bayesian optimization, and the figure of the search.

    python examples/search.py docs/bo.png

Prints the best of forty settings of a network that reads handwritten digits, and writes the figure.
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

import seqdec
from seqdec.bo import Categorical, Conditional, Integer, Ordinal, Real

SPACE = {
    "rate": Real(1e-4, 1.0, log=True),
    "optimizer": Categorical(("adam", "sgd")),
    "momentum": Conditional(Real(0.0, 0.99), on="optimizer", values=("sgd",)),
    "width": Ordinal((8, 16, 32, 64, 128)),
    "layers": Integer(1, 3),
    "decay": Real(1e-4, 10.0, log=True),
}


def error(x: Mapping[str, Any]) -> float:
    """Cross-entropy of 597 images after ten passes over 1,200 others."""
    model = MLPClassifier(
        (x["width"],) * x["layers"],
        solver=x["optimizer"],
        learning_rate_init=x["rate"],
        momentum=x.get("momentum", 0.9),
        alpha=x["decay"],
        max_iter=10,
        random_state=0,
    )
    images, labels = load_digits(return_X_y=True)
    with warnings.catch_warnings(action="ignore"):  # ten passes do not converge
        model.fit(images[:1200] / 16, labels[:1200])
        return float(log_loss(labels[1200:], model.predict_proba(images[1200:] / 16)))


def main(picture: Path) -> None:
    """Search, and write the figure."""
    result = seqdec.minimize(error, SPACE, n_calls=40, seed=0, catch=ValueError)  # of a network that diverges
    print(result.x, result.fun)
    result.plot().savefig(picture, dpi=90)
    Image.open(picture).quantize(64).save(picture, optimize=True)  # fewer colors make a smaller file


if __name__ == "__main__":
    main(Path(sys.argv[1]))
