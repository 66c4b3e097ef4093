"""Surrogates and acquisitions by name, with settings that work for standardised responses on the unit cube."""

import difflib
import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp

from seqdec import filters, likelihoods, models, policies
from seqdec.bo.filtered import filtered
from seqdec.bo.gp import gp
from seqdec.bo.surrogates import Surrogate
from seqdec.core import Acquisition, Array, Filter

_FEATURES = (180, 180, 180)


def _surrogate(
    make: Callable[..., Filter], dim: int, features: tuple[int, ...], noise: float, **options: Any
) -> Surrogate:
    """The surrogate of a filter (apply, likelihood, is_last) over an MLP."""
    network = models.network(models.MLP(1, tuple(features)), jnp.zeros(dim))
    likelihood = likelihoods.gaussian(noise)
    return filtered(lambda apply, is_last: make(apply, likelihood, is_last), network, **options)


def hilofi(
    dim: int,
    *,
    rank: int = 50,
    initial_std_hidden: float = 0.01,
    initial_std_last: float = 0.3,
    process_noise: float = 0.0,
    noise: float = 1e-4,
    features: tuple[int, ...] = _FEATURES,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """HiLoFi over an MLP: full-rank belief over the last layer, low-rank over the hidden layers.

    Args:
        dim: columns of the unit cube.
        rank: of the hidden layers' covariance.
        initial_std_hidden: prior standard deviation along each of its directions.
        initial_std_last: prior standard deviation of every parameter of the last layer.
        process_noise: variance added to every hidden parameter with every chunk of responses.
        noise: variance of the responses' noise.
        features: widths of the hidden layers.
        scale, growth: as in `seqdec.bo.filtered.filtered`.

    Raises:
        ValueError: a setting is out of its range.
    """

    def make(apply, likelihood, is_last):
        return filters.hilofi(
            apply,
            likelihood,
            is_last=is_last,
            rank=rank,
            initial_std_hidden=initial_std_hidden,
            initial_std_last=initial_std_last,
            process_noise_hidden=process_noise,
        )

    return _surrogate(make, dim, features, noise, scale=scale, growth=growth)


def lolofi(
    dim: int,
    *,
    rank: int = 50,
    rank_last: int = 100,
    initial_std_hidden: float = 0.01,
    initial_std_last: float = 0.3,
    process_noise: float = 0.0,
    noise: float = 1e-4,
    features: tuple[int, ...] = _FEATURES,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """LoLoFi over an MLP: low-rank beliefs over the last layer and over the hidden layers.

    Args:
        rank_last: of the last layer's covariance, at most its number of parameters, features[-1] + 1.
        dim, rank, initial_std_hidden, initial_std_last, process_noise, noise, features, scale, growth: as in
            `seqdec.bo.presets.hilofi`.

    Raises:
        ValueError: a setting is out of its range.
    """

    def make(apply, likelihood, is_last):
        return filters.lolofi(
            apply,
            likelihood,
            is_last=is_last,
            rank_hidden=rank,
            rank_last=rank_last,
            initial_std_hidden=initial_std_hidden,
            initial_std_last=initial_std_last,
            process_noise_hidden=process_noise,
        )

    return _surrogate(make, dim, features, noise, scale=scale, growth=growth)


def lrkf(
    dim: int,
    *,
    rank: int = 100,
    initial_std: float = 0.3,
    process_noise: float = 1e-2,
    noise: float = 1e-4,
    features: tuple[int, ...] = _FEATURES,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """LRKF over an MLP: one low-rank belief over all parameters.

    Args:
        rank: of the covariance.
        initial_std: prior standard deviation along each of its directions.
        process_noise: variance added to every parameter with every chunk of responses.
        dim, noise, features, scale, growth: as in `seqdec.bo.presets.hilofi`.

    Raises:
        ValueError: a setting is out of its range.
    """

    def make(apply, likelihood, is_last):
        return filters.lrkf(apply, likelihood, rank=rank, initial_std=initial_std, process_noise=process_noise)

    return _surrogate(make, dim, features, noise, scale=scale, growth=growth)


def ekf(
    dim: int,
    *,
    initial_std: float = 0.3,
    noise: float = 1e-4,
    features: tuple[int, ...] = (24, 24),
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """EKF over a small MLP: one dense belief over all parameters.

    Args:
        initial_std: prior standard deviation of every parameter.
        dim, noise, features, scale, growth: as in `seqdec.bo.presets.hilofi`; the network is small, because a
            dense covariance has as many entries as it has parameters, squared.

    Raises:
        ValueError: a setting is out of its range.
    """

    def make(apply, likelihood, is_last):
        return filters.ekf(apply, likelihood, initial_std=initial_std)

    return _surrogate(make, dim, features, noise, scale=scale, growth=growth)


def _gp(dim: int, **options: Any) -> Surrogate:
    return gp(**options)


_SURROGATES: dict[str, Callable[..., Surrogate]] = {
    "ekf": ekf,
    "gp": _gp,
    "hilofi": hilofi,
    "lolofi": lolofi,
    "lrkf": lrkf,
}
_LARGEST_DIM, _LARGEST_HISTORY = 20, 400
"""Beyond one of them the exact Gaussian process gives way to HiLoFi."""


def surrogate_names() -> tuple[str, ...]:
    """The names that `make_surrogate` knows besides "auto", sorted."""
    return tuple(sorted(_SURROGATES))


def choose_surrogate(dim: int, queries: int) -> str:
    """What "auto" stands for: the exact GP while its cubic cost is affordable, then HiLoFi."""
    return "gp" if dim <= _LARGEST_DIM and queries <= _LARGEST_HISTORY else "hilofi"


@functools.cache
def make_surrogate(name: str, dim: int, **options: Any) -> Surrogate:
    """The surrogate called `name` for `dim` columns; equal arguments give the same object, and so compile once.

    Raises:
        ValueError: no surrogate has that name; the message suggests one. Or an option is out of its range.
        TypeError: an option does not exist.
    """
    return _look_up("surrogate", name, _SURROGATES)(dim, **options)


_ACQUISITIONS: dict[str, Callable[[Array], Acquisition]] = {
    "log_expected_improvement": policies.log_expected_improvement,
    "predictive_sampling": lambda best: policies.predictive_sampling(propensity_samples=0),
    "thompson": lambda best: policies.thompson(propensity_samples=0),
    "ucb": lambda best: policies.ucb(2.0),
}


def acquisition_names() -> tuple[str, ...]:
    """The names that `make_acquisition` knows besides "auto", sorted."""
    return tuple(sorted(_ACQUISITIONS))


@functools.cache
def make_acquisition(acquisition: str | Acquisition) -> Callable[[Array], Acquisition]:
    """(best response so far) -> the acquisition of that name; ucb adds two standard deviations.

    Raises:
        ValueError: no acquisition has that name; the message suggests one.
        TypeError: neither a name nor an acquisition.
    """
    if isinstance(acquisition, Acquisition):
        return lambda best: acquisition
    if not isinstance(acquisition, str):
        raise TypeError(f"acquisition must be a name or a seqdec.core.Acquisition; got {acquisition!r}")
    return _look_up("acquisition", acquisition, _ACQUISITIONS)


def is_smooth(acquisition: Acquisition) -> bool:
    """Whether one key makes one function of the scores. Separate draws for separate candidates make none to climb."""
    return acquisition.exact or acquisition.needs == "draw"


def _look_up(kind: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        close = difflib.get_close_matches(str(name), list(known), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown {kind} {name!r}: {hint}Known: auto, {_listed(known)}")
    return known[name]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
