"""The tables of the pages on reproduction are those of the kept runs, with the commands that they name."""

from dataclasses import asdict

import pytest

from reproduction import page
from seqdec import cli
from seqdec.persistence import read_table

KEPT = sorted(path.stem for path in page.STORE.glob("*.parquet"))


@pytest.mark.parametrize("name", sorted({own.page for own in page.TABLES.values()}))
def test_a_page_is_up_to_date(name: str) -> None:
    text = (page.PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert {*KEPT} == {*page.RUNS} and page.page(name, text) == text


@pytest.mark.parametrize("name", KEPT)
def test_a_run_had_the_options_of_its_command(name: str) -> None:
    words = page.RUNS[name].command.split()[1:]
    asked = {key: str(value) for key, value in asdict(cli._parse(words)).items()}
    kept = read_table(page.STORE / f"{name}.parquet")[1]["options"]
    assert {key: str(value) for key, value in kept.items()} == {key: asked[key] for key in kept}
    assert set(asked) - set(kept) == {"out"}
