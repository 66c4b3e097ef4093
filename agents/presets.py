"""Agents by name, with settings that work for rewards of order one.

Ranks are those of the paper's MNIST bandit, and so are HiLoFi's initial covariances. Its observation noise is not
stated, and its process noise is too small for hidden layers that are to learn in a low-rank belief;
`benchmarks/mnist_grid.py` shows what other values give. Everything is a keyword.
"""

import difflib
import math
from collections.abc import Callable
from typing import Any

import jax
import optax
from flax import linen as nn
from optax import contrib

from seqdec import filters, likelihoods, models, optim, policies
from seqdec import params as parameters
from seqdec.agents.filtering import filtering
from seqdec.agents.networks import network_for
from seqdec.agents.neural import neural
from seqdec.core import Acquisition, Agent, HasSpaces
from seqdec.likelihoods import Likelihood
from seqdec.models import Network


def _assemble(
    name: str, make_filter: Callable, spaces, policy, network, likelihood, noise, num_candidates, settings
) -> Agent:
    """The agent of a filter factory (network, likelihood, share_linearisation=...) -> Filter."""
    acquisition, called = policies.resolve(policy)
    flt = make_filter(
        network,
        likelihoods.gaussian(noise) if likelihood is None else likelihood,
        share_linearisation=acquisition.needs == "joint",
    )
    settings = {"policy": called, "noise": noise if likelihood is None else "likelihood", **settings}
    return filtering(
        flt, acquisition, network.init, spaces, name=name, settings=settings, num_candidates=num_candidates
    )


def hilofi(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epistemic_sampling",
    model: nn.Module | Network | None = None,
    likelihood: Likelihood | None = None,
    noise: float = 0.01,
    rank: int = 50,
    initial_std_hidden: float = math.sqrt(0.1),
    initial_std_last: float = math.sqrt(0.1),
    process_noise: float = 1e-6,
    process_noise_last: float | None = None,
    num_candidates: int = 256,
    **filter_options: Any,
) -> Agent:
    """HiLoFi: full-rank belief over the last layer, low-rank over the hidden layers (`seqdec.filters.hilofi`).

    Args:
        spaces: anything with observation_space and action_space: an Environment, a gymnasium.Env.
        policy: name or acquisition of `seqdec.policies`.
        model: flax module or `seqdec.models.Network` with one output per action; None is LeNet5 for 28 x 28 images,
            else an MLP with two hidden layers of 50 units.
        likelihood: of `seqdec.likelihoods`; None is gaussian(noise).
        noise: observation variance R.
        rank: of the hidden layers' covariance.
        initial_std_hidden: prior standard deviation along each direction of the hidden layers' factor.
        initial_std_last: prior standard deviation of each parameter of the last layer.
        process_noise: variance added per step to every hidden parameter.
        process_noise_last: likewise for the last layer; None is the same.
        num_candidates: points drawn per decision from a Box of actions.
        **filter_options: further keywords of `seqdec.filters.hilofi`: basis_dtype, buffer, dtype, error_bounds,
            example, initial_std_table, is_last, per_output, tables.

    Raises:
        ValueError, TypeError: a setting or a space does not fit; the message names it.
    """
    last = process_noise if process_noise_last is None else process_noise_last
    options = {
        "rank": rank,
        "initial_std_hidden": initial_std_hidden,
        "initial_std_last": initial_std_last,
        "process_noise_hidden": process_noise,
        "process_noise_last": last,
        **filter_options,
    }

    network = network_for(spaces, model)

    def make(network, likelihood, **shared):
        return filters.hilofi(network.apply, likelihood, **{**_parts(network), **options}, **shared)

    return _assemble("hilofi", make, spaces, policy, network, likelihood, noise, num_candidates, options)


def lolofi(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "predictive_sampling",
    model: nn.Module | Network | None = None,
    likelihood: Likelihood | None = None,
    noise: float = 0.01,
    rank: int = 50,
    rank_last: int | None = None,
    initial_std_hidden: float = 1.0,
    initial_std_last: float = 1.0,
    process_noise: float = 1e-4,
    process_noise_last: float = 1e-6,
    num_candidates: int = 256,
    **filter_options: Any,
) -> Agent:
    """LoLoFi: low-rank beliefs over the last layer and over the hidden layers (`seqdec.filters.lolofi`).

    Args:
        rank_last: rank of the last layer's covariance; None is 100, or as many as a smaller last layer has parameters.
        process_noise_last: variance added per step to every parameter of the last layer.
        spaces, policy, model, likelihood, noise, rank, initial_std_hidden, initial_std_last, process_noise,
            num_candidates, **filter_options: as in `seqdec.agents.hilofi`.

    Raises:
        ValueError, TypeError: a setting or a space does not fit; the message names it.
    """
    network = network_for(spaces, model)
    if rank_last is None:
        rank_last = min(100, _last_size(network, filter_options.get("is_last", network.is_last)))
    options = {
        "rank_hidden": rank,
        "rank_last": rank_last,
        "initial_std_hidden": initial_std_hidden,
        "initial_std_last": initial_std_last,
        "process_noise_hidden": process_noise,
        "process_noise_last": process_noise_last,
        **filter_options,
    }

    def make(network, likelihood, **shared):
        return filters.lolofi(network.apply, likelihood, **{**_parts(network), **options}, **shared)

    return _assemble("lolofi", make, spaces, policy, network, likelihood, noise, num_candidates, options)


def _parts(network: Network) -> dict[str, Any]:
    """What a filter with layers must be told of a network."""
    return {"is_last": network.is_last, "tables": network.tables, "example": network.example}


def _last_size(network: Network, is_last: models.IsLast) -> int:
    """How many parameters the output layer has."""
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)))
    return sum(leaf.size for leaf in parameters.split(params, is_last)[1])


def lrkf(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "predictive_sampling",
    model: nn.Module | Network | None = None,
    likelihood: Likelihood | None = None,
    noise: float = 0.01,
    rank: int = 50,
    initial_std: float = 1.0,
    process_noise: float = 1e-4,
    num_candidates: int = 256,
    **filter_options: Any,
) -> Agent:
    """LRKF: one low-rank belief over all parameters (`seqdec.filters.lrkf`).

    Args:
        initial_std: prior standard deviation along each direction of the factor.
        spaces, policy, model, likelihood, noise, rank, process_noise, num_candidates, **filter_options: as in
            `seqdec.agents.hilofi`.

    Raises:
        ValueError, TypeError: a setting or a space does not fit; the message names it.
    """
    options = {"rank": rank, "initial_std": initial_std, "process_noise": process_noise, **filter_options}

    network = network_for(spaces, model)

    def make(network, likelihood, **shared):
        parts = {"tables": network.tables, "example": network.example, **options}
        return filters.lrkf(network.apply, likelihood, **parts, **shared)

    return _assemble("lrkf", make, spaces, policy, network, likelihood, noise, num_candidates, options)


def ekf(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epistemic_sampling",
    model: nn.Module | Network | None = None,
    likelihood: Likelihood | None = None,
    noise: float = 0.01,
    initial_std: float = math.sqrt(0.1),
    process_noise: float = 0.0,
    num_candidates: int = 256,
    **filter_options: Any,
) -> Agent:
    """EKF: one dense belief over all parameters, for small networks (`seqdec.filters.ekf`).

    Args:
        initial_std: prior standard deviation of every parameter.
        spaces, policy, model, likelihood, noise, process_noise, num_candidates: as in `seqdec.agents.hilofi`.
        **filter_options: further keywords of `seqdec.filters.ekf`: dtype, error_bounds, initial_std_table, tables.

    Raises:
        ValueError, TypeError: a setting or a space does not fit; the message names it.
    """
    options = {"initial_std": initial_std, "process_noise": process_noise, **filter_options}

    network = network_for(spaces, model)

    def make(network, likelihood, **shared):
        return filters.ekf(network.apply, likelihood, **{"tables": network.tables, **options}, **shared)

    return _assemble("ekf", make, spaces, policy, network, likelihood, noise, num_candidates, options)


def _adamw(spaces: HasSpaces, *, learning_rate: float = 1e-4, inner_steps: int = 5, **options: Any) -> Agent:
    """Epsilon-greedy network trained by AdamW."""
    return _trained(spaces, optax.adamw, "adamw", learning_rate, inner_steps, options)


def _muon(spaces: HasSpaces, *, learning_rate: float = 1e-4, inner_steps: int = 1, **options: Any) -> Agent:
    """Epsilon-greedy network trained by Muon."""
    return _trained(spaces, contrib.muon, "muon", learning_rate, inner_steps, options)


def _koala_plus_plus(spaces: HasSpaces, *, learning_rate: float = 0.3, inner_steps: int = 5, **options: Any) -> Agent:
    """Epsilon-greedy network trained by KOALA++; rate and steps are the best of ten settings on the digits bandit."""
    return _trained(spaces, optim.koala_plus_plus, "koala++", learning_rate, inner_steps, options)


def _trained(spaces, optimizer, name, learning_rate, inner_steps, options) -> Agent:
    settings = {"learning_rate": learning_rate}
    options = {"name": name, "settings": settings, **options}
    return neural(spaces, optimizer=optimizer(learning_rate), inner_steps=inner_steps, **options)


_FACTORIES: dict[str, Callable[..., Agent]] = {
    "adamw": _adamw,
    "ekf": ekf,
    "hilofi": hilofi,
    "koala++": _koala_plus_plus,
    "lolofi": lolofi,
    "lrkf": lrkf,
    "muon": _muon,
}


def names() -> tuple[str, ...]:
    """The names that `make` knows, sorted."""
    return tuple(sorted(_FACTORIES))


def describe(name: str) -> str:
    """The first line of what the agent called `name` is."""
    return (_FACTORIES[name].__doc__ or "").splitlines()[0]


def make(name: str, spaces: HasSpaces, **options: Any) -> Agent:
    """The agent called `name`; `options` go to the function of that name in `seqdec.agents`.

    Raises:
        ValueError: no agent has that name; the message suggests one.
        ValueError, TypeError: an option or a space does not fit.
    """
    if name not in _FACTORIES:
        close = difflib.get_close_matches(str(name), names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown agent {name!r}: {hint}Known: {', '.join(names())}")
    return _FACTORIES[name](spaces, **options)
