"""A surrogate: copy to seqdec/bo/surrogates/_lofi_mlp.py.

Registry, REGISTRY of seqdec/bo/surrogates/contract.py:

    "lofi_mlp": "seqdec.bo.surrogates._lofi_mlp:lofi_mlp",
"""

from seqdec import filters
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.bo.surrogates.filtered import over_mlp


def lofi_mlp(dim: int, *, rank: int = 20) -> Surrogate:
    """LoFi over an MLP."""
    return over_mlp(lambda network, likelihood: filters.lofi(network, likelihood, rank=rank), dim, features=(20,))
