"""The experiments of the papers, for `seqdec run` in a clone of the source; their names are in pyproject.toml."""
