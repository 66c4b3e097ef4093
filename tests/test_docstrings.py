"""The examples of docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("seqdec", "seqdec/agents", "seqdec/envs")
FILES = {path for folder in FOLDERS for path in (ROOT / folder).glob("**/*.py") if ">>> " in path.read_text("utf-8")}


@pytest.mark.parametrize("name", sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES))
def test_examples_print_what_they_say(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert not found.failed and (found.attempted or name == "seqdec.client")  # which needs a server
