"""Data sets: found on disk or downloaded, verified, parsed."""

from seqdec.data.cifar import load_cifar10
from seqdec.data.idx import Dataset, Split, load_idx_folder, read_idx
from seqdec.data.mnist import load_fashion_mnist, load_mnist
from seqdec.data.open_bandit import OpenBandit, average_policy, load_open_bandit
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
    "Dataset",
    "OpenBandit",
    "Split",
    "Table",
    "average_policy",
    "load_adult",
    "load_census",
    "load_cifar10",
    "load_covertype",
    "load_fashion_mnist",
    "load_idx_folder",
    "load_jester",
    "load_mnist",
    "load_mushroom",
    "load_open_bandit",
    "load_statlog",
    "load_stocks",
    "read_idx",
]
