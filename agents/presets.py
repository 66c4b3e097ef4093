"""Agents with settings that work for rewards of order one.

Ranks are those of the paper's MNIST bandit, and so are HiLoFi's initial covariances. Its observation noise is not
stated, and its process noise is too small for hidden layers that are to learn in a low-rank belief. The agent of a
filter is `from_filter` with the filter, its policy, and settings other than the filter's own.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import optax
from optax import contrib

from seqdec import checks, likelihoods, optim, policies
from seqdec.agents._filtering import filtering
from seqdec.agents._neural.loop import neural
from seqdec.agents.inputs import refuse_unused
from seqdec.agents.networks import network_for
from seqdec.agents.signatures import (
    LRKF,
    Dense,
    FilterAgent,
    HiLoFi,
    LoFi,
    LoLoFi,
    Replay,
    ReplayOptions,
    Subspace,
    TrainedOptions,
)
from seqdec.agents.wrappers.averaging import averaging
from seqdec.agents.wrappers.rehearsal import Rehearsal, rehearsing
from seqdec.agents.wrappers.standard import standard_actions, standard_spaces, standardizing
from seqdec.core import Acquisition, Agent, Filter, HasSpaces
from seqdec.filters import Numerics
from seqdec.likelihoods import Likelihood
from seqdec.memory import reservoir
from seqdec.modules import Model
from seqdec.registry import load, spelled, unknown

_ARGS = """\
    spaces: anything with observation_space and action_space: an Environment, a gymnasium.Env.
    policy: name or acquisition of `seqdec.policies`.
    model: flax module or `seqdec.models.Network` with one output per action; None is LeNet5 for 28 x 28 images,
        else an MLP with two hidden layers of 50 units. Its output layer is detected, or given by a Network's `is_last`.
    likelihood: of `seqdec.likelihoods`; None is gaussian(noise_variance).
    noise_variance: observation variance R.
    num_candidates: points drawn per decision, for Box actions only; None is 256.
    rehearsal: of past observations, a `seqdec.agents.Rehearsal`; None keeps none.
    average: a in [0, 1), decay of the moving average of the means, which acts (`seqdec.agents.averaging`); 0: the
        latest mean acts.
    standardize: give the model contexts of at most 256 numbers, numbers of candidates, and Box actions in standard
        units, by their means and standard deviations so far (`seqdec.agents.wrappers.standard`); images stay as they
        are. False gives it all as they are."""
_CHOSEN = ("optimizer", "name", "settings")
"""Keywords of `neural` that the networks with an optimizer of their own choose."""
_RAISES = """\
Raises:
    ValueError, TypeError: a setting or a space does not fit; the message names it."""


def from_filter(factory: Callable[..., Filter] | str, policy: str, **presets: Any) -> FilterAgent:
    """The agent factory of a filter: its keywords are the agent's own and, with `presets` as defaults, the filter's.

    Args:
        factory: (network, likelihood, *, keywords) -> Filter, or "module:function". Where it takes `numerics`, the
            linearization is shared between acting and learning if the policy linearizes too.
        policy: the default.
        **presets: values of the filter's keywords.
    """
    make_filter = load(factory) if isinstance(factory, str) else factory
    name = make_filter.__name__
    own = {
        key: parameter.replace(default=presets.get(key, parameter.default))
        for key, parameter in inspect.signature(make_filter).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    default_policy = policy

    def agent(
        spaces: HasSpaces,
        *,
        policy: str | Acquisition = default_policy,
        model: Model | None = None,
        likelihood: Likelihood | None = None,
        noise_variance: float = 0.01,
        num_candidates: int | None = None,
        rehearsal: Rehearsal | None = None,
        average: float = 0.0,
        standardize: bool = True,
        **settings: Any,
    ) -> Agent:
        for key in settings:
            if key not in own:
                raise TypeError(unknown(f"keyword of agents.{name}", key, signature.parameters))
        if likelihood is not None:
            refuse_unused(agent, {"noise_variance": noise_variance}, "with a likelihood, which has its own")
        acquisition, called = policies.resolve(policy)
        inside = standard_spaces(spaces) if checks.flag("standardize", standardize) else spaces
        network = network_for(inside, model)
        network = standard_actions(network, inside) if standardize else network
        if not network.tables:
            tables = {key: value for key, value in settings.items() if key == "initial_std_table"}
            refuse_unused(agent, tables, "on a network without embedding tables")
        chosen = {**presets, **settings}
        told = {"policy": called, "noise_variance": noise_variance if likelihood is None else "likelihood", **chosen}
        told["standardize"] = standardize
        if "numerics" in own:
            numerics = chosen.get("numerics", Numerics())
            # An average of means acts elsewhere than the filter linearizes.
            chosen["numerics"] = numerics._replace(share_linearization=acquisition.needs == "joint" and not average)
        likelihood = likelihoods.gaussian(noise_variance) if likelihood is None else likelihood
        flt = make_filter(network, likelihood, **chosen)
        made = filtering(
            flt, acquisition, network.init, inside, name=name, settings=told, num_candidates=num_candidates
        )
        learner = made if rehearsal is None else rehearsing(made, flt, rehearsal, inside)
        if average != 0:
            learner = _averaging(learner, flt, average, rehearsal is not None)
        return standardizing(learner, spaces) if standardize else learner

    signature = inspect.signature(agent)
    common = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    signature = signature.replace(parameters=[*common, *own.values()])
    agent.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess] (read by `inspect` and `help`)
    agent.__name__ = agent.__qualname__ = name
    agent.__doc__ = _docstring(make_filter, own)
    return agent


def _averaging(agent: Agent, flt: Filter, decay: float, rehearses: bool) -> Agent:
    """The agent of a filter, acting by the average of its belief's means."""
    recenter = flt.recenter
    if recenter is None:
        raise ValueError(f"the belief of {agent.name} has no mean that could be moved: leave out average={decay}")
    if not rehearses:
        return averaging(agent, decay, flt.mean, recenter)
    return averaging(
        agent,
        decay,
        lambda state: flt.mean(state.belief),
        lambda state, params: state._replace(belief=recenter(state.belief, params)),
    )


def _docstring(make_filter: Callable[..., Filter], own: Mapping[str, Any]) -> str:
    """That of an agent: the filter's first line, the agent's arguments, and the filter's own."""
    text = inspect.getdoc(make_filter) or ""
    found = re.search(r"^Args:\n(.*?)(?:^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    entries = re.split(r"^(?=    \w)", found[1], flags=re.MULTILINE) if found else []
    kept = [entry.rstrip() for entry in entries if set(re.split(r",\s*", entry.strip().partition(":")[0])) & set(own)]
    return "\n".join([text.partition("\n")[0], "", "Args:", _ARGS, *kept, "", _RAISES])


@spelled(neural, hidden=_CHOSEN)
def adamw(
    spaces: HasSpaces, *, learning_rate: float = 1e-4, inner_steps: int = 5, **options: Unpack[TrainedOptions]
) -> Agent:
    """Epsilon-greedy network trained by AdamW."""
    return _trained(spaces, optax.adamw, "adamw", learning_rate, inner_steps, options)


@spelled(neural, hidden=_CHOSEN)
def muon(
    spaces: HasSpaces, *, learning_rate: float = 1e-4, inner_steps: int = 1, **options: Unpack[TrainedOptions]
) -> Agent:
    """Epsilon-greedy network trained by Muon."""
    return _trained(spaces, contrib.muon, "muon", learning_rate, inner_steps, options)


@spelled(neural, hidden=_CHOSEN)
def koala_plus_plus(
    spaces: HasSpaces, *, learning_rate: float = 0.3, inner_steps: int = 5, **options: Unpack[TrainedOptions]
) -> Agent:
    """Epsilon-greedy network trained by KOALA++; rate and steps are the best of ten settings on the digits bandit."""
    return _trained(spaces, optim.koala_plus_plus, "koala++", learning_rate, inner_steps, options)


def _trained(
    spaces: HasSpaces,
    optimizer: Callable[[float], optax.GradientTransformation],
    name: str,
    learning_rate: float,
    inner_steps: int,
    options: TrainedOptions,
) -> Agent:
    checks.rate("learning_rate", learning_rate)
    settings = {"learning_rate": learning_rate}
    return neural(
        spaces, optimizer=optimizer(learning_rate), inner_steps=inner_steps, name=name, settings=settings, **options
    )


def _replay(name: str, optimizer: Callable[..., optax.GradientTransformation], learning_rate: float) -> Replay:
    """The factory of a network trained by an optimizer on minibatches of all that was seen."""
    default_rate = learning_rate

    @spelled(neural, hidden=(*_CHOSEN, "memory"), name=name)
    def agent(
        spaces: HasSpaces,
        *,
        policy: str | Acquisition = "greedy",
        learning_rate: float = default_rate,
        batch_size: int | None = 32,
        capacity: int = 40_000,
        **options: Unpack[ReplayOptions],
    ) -> Agent:
        checks.rate("learning_rate", learning_rate)
        return neural(
            spaces, optimizer=optimizer(learning_rate), policy=policy, memory=reservoir(capacity),
            batch_size=batch_size, name=name, settings={"learning_rate": learning_rate}, **options,
        )  # fmt: skip

    agent.__name__ = agent.__qualname__ = name
    agent.__doc__ = f"""Network trained by {optimizer.__name__} on minibatches of all that was seen.

Args:
    spaces: anything with observation_space and action_space.
    policy: name or acquisition of `seqdec.policies` that needs only the expected responses.
    learning_rate: of the optimizer.
    batch_size: rows of a minibatch, the newest included; None is the whole memory.
    capacity: rows of the reservoir, a uniform sample of all observations.
    **options: of `seqdec.agents.neural`: model, inner_steps, num_candidates."""
    return agent


ekf: Dense = from_filter(
    "seqdec.filters._ekf:ekf", "epistemic_sampling", initial_std=math.sqrt(0.1), initial_std_table=math.sqrt(0.1)
)
hilofi: HiLoFi = from_filter(
    "seqdec.filters._hilofi:hilofi", "epistemic_sampling", rank=50, initial_std_hidden=math.sqrt(0.1),
    initial_std_last=math.sqrt(0.1), process_noise_hidden=1e-6, process_noise_last=1e-6,
    initial_std_table=math.sqrt(0.1),
)  # fmt: skip
lofi: LoFi = from_filter("seqdec.filters._lofi:lofi", "predictive_sampling", rank=50, initial_std=0.1)
lolofi: LoLoFi = from_filter(
    "seqdec.filters._lolofi:lolofi", "predictive_sampling", rank_hidden=50, process_noise_hidden=1e-4,
    process_noise_last=1e-6, initial_std_table=math.sqrt(0.1),
)  # fmt: skip
lrkf: LRKF = from_filter(
    "seqdec.filters._lrkf:lrkf", "predictive_sampling", rank=50, process_noise=1e-4, initial_std_table=math.sqrt(0.1)
)
subspace: Subspace = from_filter("seqdec.filters._subspace:subspace", "predictive_sampling", rank=100)
replay_adamw = _replay("replay_adamw", optax.adamw, 1e-3)
replay_koala_plus_plus = _replay("replay_koala++", optim.koala_plus_plus, 0.3)
replay_muon = _replay("replay_muon", contrib.muon, 1e-3)
replay_sgd = _replay("replay_sgd", optax.sgd, 0.05)
