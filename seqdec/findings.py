"""Reports of readers: how each part of a table was read, why, and possible misreadings."""

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from seqdec.introspection import brief, html

if TYPE_CHECKING:
    import pandas as pd

_EXAMPLES = 3


class Finding(NamedTuple):
    """How a part was read."""

    name: str
    """of the column or part"""
    read_as: str
    """its kind, in short"""
    why: str
    """what in its values decided, or "declared\""""
    missing: float | None = None
    """share of the rows; None without a table"""
    examples: tuple[Any, ...] = ()
    """some of its values"""
    suspicion: str = ""
    """what a reader may not expect, and the remedy; "" for nothing"""


class Report(tuple[Finding, ...]):
    """The findings, one for each part; shown as text, or as a table by `to_pandas`."""

    def __repr__(self) -> str:
        return "\n".join(line for finding in self for line in _lines(finding))

    def _repr_html_(self) -> str:
        return html("", self.to_pandas())

    def to_pandas(self) -> "pd.DataFrame":
        """A row for each finding."""
        import pandas as pd

        return pd.DataFrame(list(self), columns=list(Finding._fields))


def examples_of(values: Iterable[Any]) -> tuple[Any, ...]:
    """The first different values."""
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(repr(value), value)
        if len(found) == _EXAMPLES:
            break
    return tuple(found.values())


def warn_of(findings: Iterable[Finding], remedy: str, *, stacklevel: int) -> None:
    """One warning that names everything suspected."""
    if suspected := [finding for finding in findings if finding.suspicion]:
        lines = "".join(f"\n  {finding.name}: {finding.suspicion}" for finding in suspected)
        warnings.warn(f"{remedy}{lines}", stacklevel=stacklevel + 1)


def _lines(finding: Finding) -> Iterable[str]:
    missing = f"; {finding.missing:.1%} missing" if finding.missing else ""
    examples = ", ".join(map(brief, finding.examples))
    yield f"{finding.name}: {finding.read_as} ({finding.why}{missing}){f': {examples}' if examples else ''}"
    if finding.suspicion:
        yield f"  ! {finding.suspicion}"
