r"""A network trained by any optax optimizer on the last observation only, with or without a belief over its last layer.

The belief is a Laplace approximation: Gaussian around the current weights, with the precision of a linear model in the
features that the network had at each observation,

    Lambda = I / sigma_0^2 + sum_t h_t h_t^T / R,        h_t the gradient of the observed response by the last layer,

kept as a root of its inverse, in O(p^2) per observation for p parameters in the last layer.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from seqdec import linalg, policies
from seqdec import params as parameters
from seqdec.agents.filtering import choices_for, decide
from seqdec.agents.networks import network_for
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Masked, Network, Posterior, Predictive, PyTree


class NeuralState(NamedTuple):
    """Network and optimizer, and the belief over the last layer."""

    params: PyTree
    optimizer: Any
    root: linalg.FullRankFactor | None
    """root of the last layer's covariance; None for a network without uncertainty"""


class NeuralInfo(NamedTuple):
    """Result of an update."""

    innovation: Array
    """(o,) observed minus predicted response, before the update"""
    loss: Array
    """() half the squared innovation"""
    rejected: Array
    """() bool: the input or the result was not finite, and the state is unchanged"""


def neural(
    spaces: HasSpaces,
    *,
    optimizer: optax.GradientTransformation,
    policy: str | Acquisition = "epsilon_greedy",
    model: nn.Module | Network | None = None,
    inner_steps: int = 1,
    last_layer_std: float | None = None,
    noise_variance: float = 0.01,
    num_candidates: int = 256,
    name: str = "neural",
    settings: Mapping[str, Any] | None = None,
) -> Agent:
    """Network x optimizer, with a buffer of one observation.

    Each update takes `inner_steps` gradient steps on half the squared error of the last observation. Optimizers that
    ask for the loss, such as `seqdec.optim.koala_plus_plus`, get it as the extra argument `value`.

    Args:
        spaces: anything with observation_space and action_space.
        optimizer: any optax transformation, e.g. `optax.adamw(1e-4)`.
        policy: name or acquisition of `seqdec.policies`; without `last_layer_std`, one that needs only the expected
            responses.
        model: a flax module or `seqdec.models.Network`; None chooses as `seqdec.agents.hilofi` does.
        inner_steps: gradient steps per observation.
        last_layer_std: prior standard deviation sigma_0 of every parameter of the output layer; None leaves the network
            without uncertainty.
        noise_variance: observation variance R of the belief over the last layer.
        num_candidates: points drawn per decision from a Box of actions.
        name: shown in tables and figures.
        settings: of the optimizer, recorded in the manifest of a run.

    Raises:
        TypeError: spaces of other kinds than Box and Discrete.
        ValueError: a policy that needs uncertainty without `last_layer_std`, a setting out of its range, or a network
            whose output layer is not known.
    """
    acquisition, called = policies.resolve(policy)
    if acquisition.needs != "mean" and last_layer_std is None:
        raise ValueError(
            f"a plain network has no uncertainty, and the policy needs {acquisition.needs!r} of it; use epsilon_greedy "
            "or pass last_layer_std"
        )
    for setting, number in (("last_layer_std", last_layer_std), ("noise_variance", noise_variance)):
        if number is not None and not number > 0:
            raise ValueError(f"{setting} must be positive; got {number!r}")
    if inner_steps < 1:
        raise ValueError(f"inner_steps must be at least 1; got {inner_steps}")
    choices = choices_for(spaces, num_candidates)
    network = network_for(spaces, model)
    transform = optax.with_extra_args_support(optimizer)
    last_layer = None if last_layer_std is None else _laplace(network, last_layer_std, noise_variance)

    def init(key):
        params = network.init(key)
        root = None if last_layer is None else last_layer.init(params)
        return NeuralState(params, transform.init(params), root)

    def act(key, state, observation):
        return decide(key, acquisition, _posterior(network, last_layer, state), choices, observation)

    def update(state, observation, action, feedback):
        obs = observation.observation if isinstance(observation, Masked) else observation
        x, y, observed = choices.evidence(obs, action, feedback)

        fresh, losses, innovations = _descend(network, transform, inner_steps, state, x, y, observed)
        good = jnp.isfinite(losses[0]) & jnp.all(
            jnp.stack([jnp.all(jnp.isfinite(p)) for p in jax.tree.leaves(fresh.params)])
        )
        if last_layer is not None:
            fresh = fresh._replace(root=last_layer.update(fresh, x, observed, good))
        kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), fresh, state)
        return kept, NeuralInfo(innovations[0], losses[0], ~good)

    told = {"policy": called, "inner_steps": inner_steps, **(settings or {})}
    if last_layer is not None:
        told |= {"last_layer_std": last_layer_std, "noise_variance": noise_variance}
    return Agent(init, act, update, name, acquisition.exact, told)


def _descend(network, transform, inner_steps, state, x, y, observed) -> tuple[NeuralState, Array, Array]:
    """The state after gradient steps on one observation, and the loss and innovation before each of them."""

    def loss_of(params):
        response = network.apply(params, x)
        innovation = jnp.atleast_1d(y - (response if observed is None else response[observed]))
        return 0.5 * jnp.sum(innovation**2), innovation

    def step(state, _):
        (loss, innovation), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        updates, optimizer_state = transform.update(gradients, state.optimizer, state.params, value=loss)
        params = optax.apply_updates(state.params, updates)
        return state._replace(params=params, optimizer=optimizer_state), (loss, innovation)

    fresh, (losses, innovations) = jax.lax.scan(step, state, length=inner_steps)
    return fresh, losses, innovations


def _posterior(network: Network, last_layer: "_LastLayer | None", state: NeuralState) -> Posterior:
    def mean(candidates):
        return network.apply(state.params, candidates)

    if last_layer is None:
        return Posterior(mean, _no_uncertainty, _no_uncertainty)

    def draw(key):
        params = last_layer.draw(key, state)
        return lambda candidates: network.apply(params, candidates)

    return Posterior(mean, lambda candidates: last_layer.joint(state, candidates), draw)


class _LastLayer(NamedTuple):
    """A belief over the last layer of a network, whose mean is the network itself."""

    init: Callable[[PyTree], linalg.FullRankFactor]
    """(params) -> root"""
    joint: Callable[[NeuralState, PyTree], Predictive]
    """(state, candidates) -> predictive"""
    draw: Callable[[Array, NeuralState], PyTree]
    """(key, state) -> params"""
    update: Callable[[NeuralState, PyTree, Array | None, Array], linalg.FullRankFactor]
    """(state, x, observed, good) -> root after an observation, unchanged unless it is good"""


def _laplace(network: Network, prior_std: float, noise_variance: float) -> _LastLayer:
    """The Laplace approximation at the head of this file."""

    def rows_of(params, x):
        """Expected responses (n,) and their gradients by the last layer (n, p)."""
        mean, pull = jax.vjp(lambda params: network.apply(params, x), params)
        (gradients,) = jax.vmap(pull)(jnp.eye(len(mean), dtype=mean.dtype))
        return mean, parameters.ravel(parameters.split(gradients, network.is_last)[1], 1)

    def init(params):
        size = sum(leaf.size for leaf in parameters.split(params, network.is_last)[1])
        return linalg.full_rank_from(prior_std * jnp.eye(size), 0)

    def joint(state, candidates):
        mean, rows = rows_of(state.params, candidates)
        products = rows @ state.root.columns
        return Predictive(mean, products @ products.mT, noise_variance * jnp.eye(len(mean), dtype=mean.dtype))

    def draw(key, state):
        columns = state.root.columns
        shift = columns @ jax.random.normal(key, (columns.shape[1],), columns.dtype)
        hidden, last = parameters.split(state.params, network.is_last)
        moved = [leaf + piece for leaf, piece in zip(last, parameters.unravel(shift, last), strict=True)]
        return parameters.join(state.params, network.is_last, hidden, moved)

    def update(state, x, observed, good):
        _, rows = rows_of(state.params, x)
        rows = jnp.where(good, rows if observed is None else rows[jnp.atleast_1d(observed)], 0)
        products = rows @ state.root.columns
        cov = noise_variance * jnp.eye(len(rows), dtype=rows.dtype)
        roots = (linalg.psd_root(products @ products.mT + cov), linalg.psd_root(cov))
        return linalg.symmetric_downdate(state.root, products, products @ state.root.columns.mT, *roots, good).factor

    return _LastLayer(init, joint, draw, update)


def _no_uncertainty(_):
    raise TypeError("a plain network has no uncertainty")
