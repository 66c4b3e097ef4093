"""The table of `seqdec.ope.evaluate`."""

import textwrap

import pandas as pd

from seqdec.introspection import COLUMNS, fitted


class Estimates(pd.DataFrame):
    """Printed in 80 columns: whose the intervals are, and what limits them, stands below the numbers."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        notes = [
            f"interval {text}: {', '.join(names)}"
            for text, names in self.groupby("interval", sort=False).groups.items()
        ]
        numbers = fitted(pd.DataFrame(self.drop(columns="interval")))
        return "\n".join([numbers, *(textwrap.fill(note, COLUMNS, subsequent_indent="  ") for note in notes)])
