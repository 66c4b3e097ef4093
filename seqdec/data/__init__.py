"""Data sets: found on disk or downloaded, verified, parsed."""

from seqdec.data.cifar import load_cifar10
from seqdec.data.idx import Dataset, Split, load_idx_folder, read_idx
from seqdec.data.kuairec import load_kuairec, load_random_exposures
from seqdec.data.kuairec_synthetic import synthetic_kuairec, write_kuairec
from seqdec.data.mnist import load_fashion_mnist, load_mnist
from seqdec.data.recommender import RecommenderLog, check_log, form_blocks

__all__ = [
    "Dataset",
    "RecommenderLog",
    "Split",
    "check_log",
    "form_blocks",
    "load_cifar10",
    "load_fashion_mnist",
    "load_idx_folder",
    "load_kuairec",
    "load_mnist",
    "load_random_exposures",
    "read_idx",
    "synthetic_kuairec",
    "write_kuairec",
]
