"""Settings by the name of an agent or a surrogate are keywords of its factory: type checkers do not see into dicts."""

import inspect
from typing import Any

from reproduction import bo as search
from reproduction import tabular
from seqdec import agents, commands
from seqdec.bo.surrogates import contract as surrogates


def tables() -> list[tuple[Any, dict[str, Any]]]:
    """(factory, settings) of the tables of all experiments."""
    own = [getattr(commands.EVERY[name], table, {}) for name in commands.EVERY for table in ("tuned", "paper")]
    rows: list[tuple[Any, dict[str, Any]]] = [
        (agents.REGISTRY[name], settings) for table in own for name, settings in table.items()
    ]
    for table in (tabular._ALL, *tabular.TUNED.values()):
        for name, settings in table.items():
            factory = tabular.linear if name == "linear" else agents.REGISTRY[tabular._KINDS[name]]
            rows.append((factory, settings))
    for name, settings in search._PAPER.items():
        rows.append((surrogates.REGISTRY[search._SURROGATES.get(name, name)], settings))
    return rows


def test_settings_of_the_experiments_are_keywords() -> None:
    rows = tables()
    assert len(rows) > 30
    for factory, settings in rows:
        unknown = settings.keys() - inspect.signature(factory).parameters.keys()
        assert not unknown, (factory, unknown)
