r"""Bayesian linear regression on the few of many features that matter, the same for all responses.

A feature matters or not: 1 in F does. With P_j = I + sum phi phi^T over the rows of response j, d_jf = the variance of
feature f given those chosen, in P_j, r_jf its covariance with the residuals, and sigma_j^2 the noise that these leave,

    log odds of f = sum_j (r_jf^2 / (d_jf sigma_j^2) - log d_jf) / 2 - log F

is the evidence for one more feature. The likeliest is added until the odds of each are against it, at most 31, and the
weights of those chosen have the belief of `seqdec.agents.regression.conjugate`; the others are 0. P_j = L_j L_j^T, one
column for each feature chosen, at O(n F) for each: a pivoted Cholesky decomposition. T_j is (F, 32).

Source: Tipping, Faul, "Fast marginal likelihood maximization for sparse Bayesian models", 2003, here with one variance
for all weights, and evidence from all responses.
"""

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec.agents.regression.conjugate import Noise, Regression, Sums

_MOST = 32
"""Features chosen, with the constant."""
_GRAM = 2**21
"""Most numbers in the sums over rows."""


class Sparse(Regression):
    """Belief over the weights of n responses of F features, most of them 0."""

    def recomputed(self, sums: Sums) -> "Sparse":
        """The belief from sums over rows, with the noise of these."""
        _, features, most = self.root.shape
        gram = sums.gram + jnp.eye(features, dtype=sums.gram.dtype)

        def add(number, state):
            lower, left, rest, squares, order = state
            noise = Noise(squares, sums.counts).variance[:, None]
            odds = 0.5 * jnp.sum(rest**2 / (left * noise) - jnp.log(left), 0)
            odds = odds.at[order].set(-jnp.inf, mode="drop")
            best = jnp.where(number == 0, features - 1, jnp.argmax(odds))
            more = (number == 0) | (odds[best] > jnp.log(features))
            pivot = jnp.sqrt(left[:, best])
            column = gram[:, best] - jnp.einsum("jfk,jk->jf", lower, lower[:, best])
            column = jnp.where(more, column / pivot[:, None], 0)
            told = jnp.where(more, rest[:, best] / pivot, 0)
            left, rest = jnp.maximum(left - column**2, 1), rest - column * told[:, None]
            squares, order = jnp.maximum(squares - told**2, 0), order.at[number].set(jnp.where(more, best, features))
            return lower.at[:, :, number].set(column), left, rest, squares, order

        left = jnp.diagonal(gram, axis1=1, axis2=2)
        start = jnp.zeros_like(self.root), left, sums.moment, sums.squares, jnp.full(most, features)
        *_, squares, order = jax.lax.fori_loop(0, most, add, start)
        chosen = gram.at[:, order[:, None], order[None]].get(mode="fill", fill_value=0)
        chosen = chosen + jnp.diag((order == features).astype(chosen.dtype))
        root = self.root.at[:].set(0).at[:, order].set(jax.lax.map(linalg.inverse_root, chosen), mode="drop")
        weights = jnp.einsum("jfk,jgk,jg->jf", root, root, sums.moment)
        return self._replace(weights=weights, root=root, noise=Noise(squares, sums.counts))


def suits(responses: int, features: int) -> bool:
    """Whether the sums over rows are small enough."""
    return responses * features**2 <= _GRAM


def prior(responses: int, features: int) -> Sparse:
    """Before any observation: of the constant alone."""
    root = jnp.zeros((responses, features, _MOST)).at[:, -1, 0].set(1)
    return Sparse(jnp.zeros((responses, features)), root, Noise(jnp.zeros(responses), jnp.zeros(responses)))
