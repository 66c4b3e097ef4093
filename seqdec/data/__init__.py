"""Data sets: read from disk or downloaded, verified, parsed."""

from seqdec.data.digits import load_digits
from seqdec.data.idx import Dataset, Split, load_idx_folder, read_idx
from seqdec.data.kuairec import WATCH_RATIO, load_kuairec, load_random_exposures
from seqdec.data.kuairec_synthetic import synthetic_kuairec, write_kuairec
from seqdec.data.mnist import load_fashion_mnist, load_mnist
from seqdec.data.open_bandit import OpenBandit, average_policy, load_open_bandit
from seqdec.data.recommender import RecommenderLog, RewardUnit, check_log, form_blocks
from seqdec.data.tabular import (
    Table,
    load_adult,
    load_census,
    load_covertype,
    load_jester,
    load_mushroom,
    load_statlog,
    load_stocks,
)

__all__ = [
    "WATCH_RATIO",
    "Dataset",
    "OpenBandit",
    "RecommenderLog",
    "RewardUnit",
    "Split",
    "Table",
    "average_policy",
    "check_log",
    "form_blocks",
    "load_adult",
    "load_census",
    "load_covertype",
    "load_digits",
    "load_fashion_mnist",
    "load_idx_folder",
    "load_jester",
    "load_kuairec",
    "load_mnist",
    "load_mushroom",
    "load_open_bandit",
    "load_random_exposures",
    "load_statlog",
    "load_stocks",
    "read_idx",
    "synthetic_kuairec",
    "write_kuairec",
]
