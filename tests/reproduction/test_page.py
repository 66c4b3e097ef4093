"""The tables of docs/reproduction.md are those of the runs that are kept, whose commands are those that it names."""

from dataclasses import asdict

import pandas as pd
import pytest

from reproduction import page
from seqdec import cli
from seqdec.persistence import read_table

KEPT = [name for name in page.RUNS if (page.STORE / f"{name}.parquet").is_file()]


def test_the_page_is_up_to_date() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert KEPT and page.page(text) == text


@pytest.mark.parametrize("name", KEPT)
def test_a_run_had_the_options_of_its_command(name: str) -> None:
    words = page.RUNS[name].command.split()[1:]
    asked = {key: str(value) for key, value in asdict(cli._parse(words)).items()}
    kept = read_table(page.STORE / f"{name}.parquet")[1]["options"]
    assert {key: str(value) for key, value in kept.items()} == {key: asked[key] for key in kept}
    assert set(asked) - set(kept) == {"out"}


def test_numbers_of_the_paper_stand_beside_those_of_agents_with_its_settings_and_with_ours() -> None:
    rows = {"lrkf": (30.0, 1.0), "lrkf.published": (20.0, 2.0), "muon.published": (10.0, float("nan"))}
    summary = pd.DataFrame(
        [{"reward": mean, "reward_95": margin} for mean, margin in rows.values()], index=pd.Index(rows)
    )
    lrkf, muon = page.bandit(summary).to_numpy()
    assert list(lrkf) == ["LRKF", "28,355", "20.0 ± 2.0", "30.0 ± 1.0"]
    assert list(muon) == ["Muon", "", "10.0", ""]


def summary_of(column: str, rows: dict, names: list[str]) -> pd.DataFrame:
    """Means without margins, by agent or by function and method; a time for each."""
    index = pd.MultiIndex.from_tuples(rows, names=names) if len(names) > 1 else pd.Index(list(rows), name=names[0])
    times = [10.0 * value for value in rows.values()]
    return pd.DataFrame({column: list(rows.values()), "seconds": times, "seconds_per_1000_steps": times}, index=index)


def test_policies_stand_in_their_own_columns() -> None:
    rows = {"lofi.published": 1.0, "lofi+epsilon_greedy.published": 2.0, "lofi+thompson.published": 3.0, "lofi": 4.0}
    table = page.exploration(summary_of("reward", rows, ["agent"])).set_index("agent")
    assert list(table.loc["LoFi"]) == ["1.000", "2.000", "3.000", "23,304"]
    assert list(table.loc["HiLoFi"]) == ["", "", "", ""]


def test_a_search_stands_beside_the_published_value_of_its_function_where_there_is_one() -> None:
    rows = {("branin", "gp.published"): 2.0, ("branin", "random"): 3.0, ("hartmann6", "gp.published"): -1.0}
    table = page.searches(summary_of("best", rows, ["function", "method"]))
    assert table.to_numpy().tolist() == [["branin", "2.000 (2.84)", "3.000"], ["hartmann6", "-1.000 (-2.06)", ""]]


def test_ranks_have_their_own_rows() -> None:
    rows = {("drawnn200", "hilofi:10.published"): -600.0, ("drawnn200", "lrkf:200.published"): -900.0}
    table = page.by_rank(summary_of("best", rows, ["function", "method"]))
    assert table.to_numpy().tolist() == [
        ["HiLoFi", "10", "631", "600.0", "38", "-6000"],
        ["LRKF", "200", "", "900.0", "", "-9000"],
    ]
    rows = {"lofi:1.published": 0.5, "lofi:20.published": 0.75, "lrkf:1.published": 0.25}
    table = page.ranks(summary_of("recent_accuracy", rows, ["agent"]))
    assert table["LoFi / % (ms)"].tolist() == ["50.0 (5.0)", "75.0 (7.5)"]
    assert table["rank"].tolist() == ["1", "20"]
    assert table["LRKF / % (ms)"].tolist()[0] == "25.0 (2.5)"


def test_watch_ratios_with_the_paper_s_settings_and_with_ours() -> None:
    rows = {"hilofi": 1.5, "hilofi.published": 1.25, "random": 0.5}
    table = page.watched(summary_of("per_step", rows, ["agent"]))
    assert table.to_numpy().tolist() == [
        ["HiLoFi", "1.250", "12.50", "1.500", "15.00"],
        ["random", "", "", "0.500", "5.00"],
    ]
