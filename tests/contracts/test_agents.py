"""Every agent of the registry keeps the contract of `seqdec.testing` on each kind of space that it claims, or refuses.

What costs is compilation: each agent is one program for one space of each kind, dealt out in turn; one agent of each
kind is traced in all of them, and random play runs in all.
"""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, models, testing
from seqdec.core import Agent, Spaces
from seqdec.features import SparseBox

SMALL: dict[str, Any] = {
    "buffer": 4,
    "capacity": 8,
    "every": 2,
    "inner_steps": 1,
    "members": 2,
    "rank": 3,
    "rank_hidden": 3,
    "rank_last": 3,
}
"""Settings that make an agent small, where it has them."""


def box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(low, high, shape, dtype)


ARMS, NUMBERS = spaces.Discrete(3), box(-1, 1, (4,))


def candidates(count: int = 3, **parts: spaces.Space) -> Spaces:
    return Spaces(spaces.Dict(parts), spaces.Discrete(count))


FITTING: dict[str, dict[str, Spaces]] = {
    "contexts": {
        "numbers": Spaces(box(-np.inf, np.inf, (4,)), ARMS),
        "doubles": Spaces(box(-1, 1, (4,), np.float64), ARMS),
        "halves": Spaces(box(-1, 1, (4,), np.float16), ARMS),
        "a number": Spaces(box(-1, 1, ()), ARMS),
        "an image": Spaces(box(0, 255, (2, 2, 1), np.uint8), ARMS),
        "integers": Spaces(box(-3, 3, (4,), np.int32), ARMS),
        "wide integers": Spaces(box(-(2**40), 2**40, (4,), np.int64), ARMS),
        "a category": Spaces(spaces.Discrete(4, start=2), spaces.Discrete(3, start=7)),
        "nothing": Spaces(box(-1, 1, (0,)), ARMS),
        "no integers": Spaces(box(0, 1, (2, 0), np.int32), ARMS),
        "one arm": Spaces(NUMBERS, spaces.Discrete(1)),
    },
    "points": {
        "numbers": Spaces(box(-1, 1, (2,)), spaces.Box(np.array([0, -5], np.float32), np.array([1e6, 5], np.float32))),
        "doubles": Spaces(box(-1, 1, (2,)), box(0.7, 0.7000002, (2,), np.float64)),  # 0.7 is less in 32 bits
        "halves": Spaces(box(-1, 1, (2,)), box(-1, 1, (2,), np.float16)),
        "a matrix": Spaces(spaces.Discrete(4, start=2), box(0, 1, (2, 1))),
        "a number": Spaces(box(-1, 1, (0,)), box(-2, 2, ())),
        "integers": Spaces(box(0, 255, (2, 2, 1), np.uint8), box(0, 5, (2,), np.int32)),
        "bytes": Spaces(box(-1, 1, (2,)), box(0, 255, (2,), np.uint8)),
        "one point": Spaces(box(-1, 1, (2,)), box(1, 1, (2,))),
        "nothing": Spaces(box(-1, 1, (2,)), box(0, 1, (0,))),
        "nothing at all": Spaces(box(-1, 1, (0,)), box(0, 1, (0,))),
    },
    "features": {
        "numbers": candidates(features=box(-1, 1, (3, 4))),
        "doubles": candidates(features=box(-1, 1, (3, 4), np.float64)),
        "columns": candidates(age=box(0, 1, (3,)), height=box(0, 1, (3, 2)), picture=box(0, 1, (3, 2, 2))),
        "one candidate": candidates(1, features=box(-1, 1, (1, 4))),
    },
    "sparse": {
        "words": Spaces(SparseBox(50, 4), ARMS),
        "many words": Spaces(SparseBox(1000, 2), spaces.Discrete(2, start=3)),
        "one arm": Spaces(SparseBox(1, 1), spaces.Discrete(1)),
    },
    "ids": {
        "items": candidates(video=box(0, 5, (3,), np.int32)),
        "users too": candidates(user=box(0, 4, (3,), np.uint8), video=box(1, 5, (3,), np.int64)),
        "numbers too": candidates(video=box(0, 5, (3,), np.int32), price=box(0, 1, (3,)), seen=box(0, 1, (3, 2))),
        "one candidate": candidates(1, video=box(0, 5, (1,), np.int32)),
    },
}
"""Spaces by the kind that `Capabilities.spaces` names."""


REMEDIES: dict[str, tuple[Spaces, str]] = {
    "several numbers of values": (Spaces(spaces.MultiDiscrete([2, 2]), ARMS), "FlattenObservation"),
    "bits": (Spaces(spaces.MultiBinary(3), ARMS), "FlattenObservation"),
    "texts": (Spaces(spaces.Text(5), ARMS), "FlattenObservation"),
    "a sequence": (Spaces(spaces.Sequence(NUMBERS), ARMS), "TransformObservation"),
    "a tuple": (Spaces(spaces.Tuple([NUMBERS]), ARMS), "FlattenObservation"),
    "a dict of categories": (Spaces(spaces.Dict(a=spaces.Discrete(3)), ARMS), "FlattenObservation"),
    "too few rows": (candidates(3, features=box(-1, 1, (2, 4))), "FlattenObservation"),
    "candidates with points": (Spaces(spaces.Dict(features=box(-1, 1, (3, 4))), NUMBERS), "FlattenObservation"),
    "unbounded points": (Spaces(NUMBERS, box(-np.inf, np.inf, (2,))), r"Bound .*Box\(low, high\)"),
    "long integers": (Spaces(NUMBERS, box(0, 2**30, (2,), np.int32)), "within -16777216"),
    "several actions": (Spaces(NUMBERS, spaces.MultiDiscrete([2, 2])), "Number those of a gymnasium.Env"),
    "row numbers below 0": (candidates(video=box(-1, 5, (3,), np.int32)), "add 1 to them"),
    "columns of row numbers": (candidates(video=box(0, 5, (3, 2), np.int32)), "one entry of each of its columns"),
    "row numbers without an end": (candidates(video=box(0, np.inf, (3,), np.int32)), "number those that occur"),
}
"""Spaces that no agent takes, and what the error says to do; one that never looks at row numbers takes any."""


def small(name: str, kind: str, where: Spaces) -> Agent:
    """A small agent; that of candidates has its own network."""
    own, arms = agents.capabilities(name), where.action_space
    options: dict[str, Any] = {}
    if own.kind != "regression" or kind == "contexts":  # the regressions are other agents elsewhere
        known = inspect.signature(inspect.unwrap(agents.REGISTRY[name])).parameters
        options = {key: value for key, value in SMALL.items() if key in known}
        if own.model and kind in ("contexts", "points"):
            options["model"] = models.MLP(int(arms.n) if isinstance(arms, spaces.Discrete) else 1, (4,))
    if kind == "points" and own.policy:
        options["num_candidates"] = 4
    return agents.make(name, where, **options)


BY_DEFAULT = {
    "contexts": ("auto", "hilofi", "vbll"),
    "points": ("gp", "linear"),
    "features": ("adamw", "linear"),
    "ids": ("hilofi", "popularity"),
    "sparse": ("hashed",),
}
"""Agents of each kind, each kind of space more than once; the others are made of the same parts."""


def claims() -> list[Any]:
    """Agent, kind, and one of the spaces of this kind, dealt out in turn; random play in all of them."""
    dealt = []
    for kind, known in FITTING.items():
        takers = [name for name in agents.names() if kind in agents.capabilities(name).spaces and name != "random"]
        for index, name in enumerate(takers):
            marks = () if name in BY_DEFAULT[kind] else pytest.mark.extended
            dealt.append(pytest.param(name, kind, list(known)[index % len(known)], marks=marks))
        dealt += [("random", kind, what) for what in known]
    return dealt


@pytest.mark.parametrize(("name", "kind", "what"), claims())
def test_contract(name: str, kind: str, what: str) -> None:
    testing.check_agent(lambda where: small(name, kind, where), spaces=FITTING[kind][what], learns=name != "random")


SPACES = [(kind, what) for kind, known in FITTING.items() for what in known]
FIRST = {agents.capabilities(name).kind: name for name in reversed(agents.names())}
TRACED = sorted({*FIRST.values(), "linear", "random", "replay_sgd", "vbll"})
"""One agent of each kind, and those beside them with learning of their own."""


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("kind", "what"), SPACES)
def test_every_space_is_taken(kind: str, what: str) -> None:
    where = FITTING[kind][what]
    space, arms = where.observation_space, where.action_space
    seen = jax.tree.map(jnp.asarray, space.sample())
    for name in TRACED:
        if kind in agents.capabilities(name).spaces:
            agent = small(name, kind, where)
            state = jax.eval_shape(agent.init, jax.random.key(0))
            action = jax.eval_shape(agent.act, jax.random.key(0), state, seen)
            assert action.value.shape == (arms.shape or ()), name
            assert jnp.issubdtype(action.value.dtype, np.integer) == np.issubdtype(arms.dtype, np.integer), name
            fresh, _ = jax.eval_shape(agent.update, state, seen, action.value, jnp.float32(0.5))
            assert jax.tree.structure(fresh) == jax.tree.structure(state), name


@pytest.mark.parametrize("name", [*TRACED, "popularity"])
def test_other_spaces_are_refused_with_a_remedy(name: str) -> None:
    for what, (where, remedy) in REMEDIES.items():
        if "row numbers" in what and name == "random":  # it does not look at them
            continue
        if name == "popularity" or ("row numbers" in what and name == "gp"):  # they ask for others in all cases
            remedy = "row numbers"
        with pytest.raises((TypeError, ValueError), match=remedy):
            agents.make(name, where)


@pytest.mark.parametrize("name", agents.names())
def test_kinds_of_spaces_that_it_does_not_claim_are_refused(name: str) -> None:
    for kind in FITTING.keys() - agents.capabilities(name).spaces:
        for where in FITTING[kind].values():
            with pytest.raises(TypeError, match=r"row numbers|use (linear|hashed) or auto"):
                agents.make(name, where)


@pytest.mark.extended
def test_integers_beyond_those_of_jax_are_refused_as_integers() -> None:
    agent = agents.linear(FITTING["contexts"]["wide integers"])
    state, context = agent.init(jax.random.key(0)), np.array([2**40, -(2**40), 2**35 + 1, 0])
    with pytest.raises(ValueError, match=r"at most 32 bits.*pass floats"):
        agent.act(jax.random.key(0), state, context)
    assert agent.act(jax.random.key(0), state, context.astype(float)).propensity > 0
    state, info = agent.update(state, context.astype(float), 0, 1.0)
    assert not info.rejected
    assert agent.act(jax.random.key(0), state, -np.arange(4)).propensity > 0
