"""The tables of docs/reproduction.md are those of the runs that are kept, whose commands are those that it names."""

import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from seqdec import cli
from seqdec.persistence import read_table

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "benchmarks")]

import reproduction  # noqa: E402  # pyright: ignore[reportMissingImports]

KEPT = [name for name in reproduction.RUNS if (reproduction.STORE / f"{name}.parquet").is_file()]


def test_the_page_is_up_to_date() -> None:
    text = reproduction.PAGE.read_text(encoding="utf-8")
    assert KEPT and reproduction.page(text) == text


@pytest.mark.parametrize("name", KEPT)
def test_a_run_had_the_options_of_its_command(name: str) -> None:
    words = reproduction.RUNS[name].command.split()[1:]
    asked = {key: str(value) for key, value in asdict(cli._parse(words)).items()}
    kept = read_table(reproduction.STORE / f"{name}.parquet")[1]["options"]
    assert {key: str(value) for key, value in kept.items()} == {key: asked[key] for key in kept}
    assert set(asked) - set(kept) == {"out"}


def test_numbers_of_the_paper_stand_beside_those_of_agents_with_its_settings_and_with_ours() -> None:
    rows = {"lrkf": (30.0, 1.0), "lrkf.published": (20.0, 2.0), "muon.published": (10.0, float("nan"))}
    summary = pd.DataFrame(
        [{"reward": mean, "reward_95": margin} for mean, margin in rows.values()], index=pd.Index(rows)
    )
    lrkf, muon = reproduction.bandit(summary).to_numpy()
    assert list(lrkf) == ["LRKF", "28,355", "20.0 ± 2.0", "30.0 ± 1.0"]
    assert list(muon) == ["Muon", "", "10.0", ""]
