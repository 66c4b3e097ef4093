"""Where data sets are looked for."""

import os
from pathlib import Path

from seqdec.persistence import located


def data_folder(name: str) -> Path | None:
    """The folder `name` in $SEQDEC_DATA, which need not exist; None where the variable is not set."""
    home = os.environ.get("SEQDEC_DATA")
    return located(home) / name if home else None
