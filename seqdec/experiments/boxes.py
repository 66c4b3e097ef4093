r"""The filters at the cost of their algorithm boxes as printed, for `seqdec bench filters` to measure against.

The same posteriors as `seqdec.filters`, from factors that are formed, stacked and factorised anew at every observation:
O(D d^2) for C = P_{d,+q}(C (I - K J)^T, R^{1/2} K^T) with C (d x D), and O(D^3) for the full-rank root Q_R(T (I - K
J)^T, R^{1/2} K^T).

Source: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy, "Martingale Posterior Neural Networks for Fast Sequential
Decision Making", Algorithms 2 and 3.
"""

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec.core import Filter
from seqdec.filters import blocks
from seqdec.filters.blocks import Block, BlockState, BlockUpdate, pack_whole, unpack_whole
from seqdec.likelihoods import Likelihood
from seqdec.models import Network


def _block(start, reduce, process_noise) -> Block:
    """A block whose factor C has Sigma = C^T C: `reduce` makes a factor of the stacked rows and the variance q."""

    def init(key, leaves, dtype, like):
        del like
        return BlockState(start(key, sum(leaf.size for leaf in leaves), dtype), jnp.zeros((), dtype))

    def predict(state):
        return state._replace(pending=state.pending + process_noise)

    def project(state, jacobian):
        return jacobian[0] @ state.factor.mT

    def variance(state, products):
        del state
        return products @ products.mT

    def step(state, jacobian, products, weights):
        move = (weights @ products) @ state.factor + state.pending * (weights @ jacobian[0])
        return (move,), move @ move, None

    def update(state, seen):
        raw = seen.products @ state.factor + state.pending * jnp.where(seen.accept, seen.jacobian[0], 0)
        gain = linalg.solve_psd(seen.innovation_root, raw)
        moved = state.factor - seen.products.mT @ gain
        factor = reduce(moved, seen.noise_root @ gain, state.pending)
        none = jnp.zeros_like(state.pending)
        kept = BlockState(jnp.where(seen.accept, factor, state.factor), jnp.where(seen.accept, 0, state.pending))
        return BlockUpdate(kept, gain @ gain.mT, none, none)

    def draw(key, state):
        return (jax.random.normal(key, (len(state.factor),), state.factor.dtype) @ state.factor,)

    def columns(state):
        return (state.factor.mT,)

    def pending(state):
        return state.pending

    return Block(pack_whole, unpack_whole, init, predict, columns, project, variance, pending, step, update, draw)


def _low_rank(rank: int, initial_std, process_noise) -> Block:
    def start(key, size, dtype):
        return initial_std * linalg.random_orthonormal_rows(key, rank, size, dtype)

    def reduce(moved, noise, q):
        return linalg.low_rank_projection(rank, moved, noise, inflation=q)

    return _block(start, reduce, process_noise)


def _full_rank(initial_std, process_noise) -> Block:
    def start(key, size, dtype):
        del key
        return initial_std * jnp.eye(size, dtype=dtype)

    def reduce(moved, noise, q):
        del q
        return linalg.root_of_sum(moved, noise)

    return _block(start, reduce, process_noise)


def make(
    name: str, network: Network, likelihood: Likelihood, *, rank: int, rank_last: int, std, q, dtype=None
) -> Filter:
    """The filter called `name` (lrkf, lolofi or hilofi), every block with the same prior std and process noise q."""
    hidden = _low_rank(rank, std, q)
    if name == "lrkf":
        return blocks.single(network.apply, likelihood, hidden, True, False, dtype, {})
    last = _full_rank(std, q) if name == "hilofi" else _low_rank(rank_last, std, q)
    return blocks.layered(network.apply, likelihood, network.is_last, hidden, last, True, False, dtype, {})
