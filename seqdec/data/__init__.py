"""Data sets: found on disk or downloaded, verified, parsed."""

from seqdec.data.cifar import load_cifar10
from seqdec.data.idx import Dataset, Split, load_idx_folder, read_idx
from seqdec.data.mnist import load_fashion_mnist, load_mnist

__all__ = ["Dataset", "Split", "load_cifar10", "load_fashion_mnist", "load_idx_folder", "load_mnist", "read_idx"]
