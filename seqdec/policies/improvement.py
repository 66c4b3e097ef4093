r"""Expected improvement over the best response so far, in logarithms.

    EI(a) = E max(f_a - best, 0) = std_a h(z),    z = (mean_a - best) / std_a,    h(z) = phi(z) + z Phi(z)

log h is computed without h, which underflows in single precision for z below -14.

With response noise of standard deviation tau, the augmented EI is EI(a) (1 - tau / sqrt(std_a^2 + tau^2)).

Source: Jones, Schonlau, Welch, "Efficient global optimization of expensive black-box functions", 1998; in logarithms:
Ament et al., "Unexpected improvements to expected improvement for Bayesian optimization", 2023; augmented: Huang,
Allen, Notz, Zeng, "Global optimization of stochastic black-box systems via sequential kriging meta-models", 2006.
"""

import math

import jax
import jax.numpy as jnp

from seqdec.core import Acquisition, Array
from seqdec.policies import common

_FAR = 10.0
"""Beyond it the series in 1 / z^2 is exact to 1e-6; the closed form loses digits."""


def log_expected_improvement(best=None, noise_std=None) -> Acquisition:
    """Play the largest log EI, std_a epistemic; the first of equal ones.

    Args:
        best: response to be exceeded; may be traced. None: the largest expected response of the allowed candidates.
        noise_std: tau of the augmented EI; may be traced. None and 0: EI.
    """

    def score(key, posterior, candidates, mask):
        del key
        at = common.marginals(posterior, candidates)
        variance = jnp.maximum(at.variance, jnp.finfo(at.variance.dtype).eps ** 2)
        std = jnp.sqrt(variance)
        incumbent = jnp.max(common.masked(at.mean, mask)) if best is None else best
        scores = jnp.log(std) + log_h((at.mean - incumbent) / std)
        if noise_std is not None:
            total = variance + noise_std**2
            scores += jnp.log(variance / total) - jnp.log1p(noise_std / jnp.sqrt(total))
        return common.masked(scores, mask)

    return Acquisition(score, "joint")


@jax.custom_jvp
def log_h(z: Array) -> Array:
    """log(phi(z) + z Phi(z)), finite and with a gradient wherever z^2 is finite.

    As written for z > -1; log phi(z) + log(1 + z Phi(z) / phi(z)) down to -10; below, the asymptotic series of the
    second term. The derivative is Phi(z) / h(z), below -10 its asymptotic series.
    """
    near, far = jnp.maximum(z, -_FAR), jnp.minimum(z, -_FAR)
    log_phi, cdf = _log_phi(near), _cdf(near)
    density = jnp.exp(log_phi)
    plain, closed = jnp.log(density + near * cdf), log_phi + jnp.log1p(near * cdf / density)
    s = 1 / far**2
    series = _log_phi(far) - 2 * jnp.log(-far) + jnp.log1p(-s * (3 - s * (15 - s * (105 - 945 * s))))
    return jnp.where(z > -1, plain, jnp.where(z > -_FAR, closed, series))


@log_h.defjvp
def _log_h_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), value = primals, log_h(*primals)
    near, far = _cdf(jnp.maximum(z, -_FAR)) / jnp.exp(jnp.where(z > -_FAR, value, 0)), jnp.minimum(z, -_FAR)
    s = 1 / far**2
    return value, jnp.where(z > -_FAR, near, -far * (1 + s * (2 - s * (6 - s * (42 - s * 414))))) * tangents[0]


def _cdf(z: Array) -> Array:
    """Phi(z)."""
    return jax.lax.erfc(-z / math.sqrt(2)) / 2


def _log_phi(z: Array) -> Array:
    return -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
