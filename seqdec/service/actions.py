"""Arms that come and go, and points of a Box, as actions (items: `seqdec.service.items`)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.boundary import checks
from seqdec.core import Schema
from seqdec.introspection import counted
from seqdec.ope.labels import Label, by_action
from seqdec.ope.log import Log
from seqdec.service import explanation
from seqdec.service.contexts import Contexts, Rows, split
from seqdec.service.control import Control, law_of
from seqdec.service.database import Arm
from seqdec.service.explanation import Explanation
from seqdec.service.model import Model
from seqdec.service.store import Store

_LATEST = 500
"""Decisions whose contexts are averaged."""


class Chosen(NamedTuple):
    """Decisions not yet in the log: a list of each."""

    actions: Sequence[Any]
    """for the caller"""
    contexts: Sequence[bytes]
    masks: Sequence[bytes | None]
    written: Sequence[Any]
    """for the log"""
    propensities: Sequence[float]
    probabilities: Sequence[tuple[float, ...] | None]
    clipped: int
    """number of contexts beyond bounds"""
    shadows: Sequence[tuple[float, ...]] = ()
    """probabilities of the agent where another rule decided; 1 for its choice if it does not compute them"""
    outside: int = 0
    """number of contexts with a number far outside of what was learned"""


class Taken(NamedTuple):
    """An arm that another rule plays."""

    arm: Any
    chance: float
    """its probability under that rule"""


NOTHING = Chosen([], [], [], [], [], [], 0)


class Imported(NamedTuple):
    """Decisions of another log, as in `Chosen`."""

    rows: Rows
    masks: Sequence[bytes | None]
    written: Sequence[Any]


class Actions(Protocol):
    """The operations of a kind of actions; `ask`, `ask_many` in any thread, the others one at a time.

    restore: follow the log, with a model of so many outputs.
    ask, ask_many: check a call's arguments. Raise TypeError or ValueError.
    forbidden: of the given actions by place, as in the log, a place where the mask or the items do not allow it.
    portion: most decisions made while other calls wait.
    taken: a call with its masks or items checked, to be cut in portions. Raises TypeError or ValueError.
    some: a call for those at some places. Raises ValueError for a part of a slate.
    shown: a logged action, for the caller.
    choose: actions of the decisions from a number on. Raises TypeError or ValueError.
    lesson: output or point that a model learns of a logged action; None: its output is gone.
    explain: (context) -> explanation, from a copy of the belief, in any thread.
    schema: what the numbers of another log have to stand for; `learned`: those of logs before.
    imported: rows of another log. Raises ValueError for contexts that do not fit, or an unknown action.
    compared: (n, ...) the part of logged contexts by which rows are known.
    begin: compile what one decision needs, and decide by it until `warm_up` is done.
    warm_up: compile all programs, in steps, of which only the first is of this thread; each says whether all that learn
        are compiled.
    """

    portion: int

    def restore(self, store: Store, outputs: int) -> None: ...
    def ask(self, context: Any, mask: Any, items: Any) -> Any: ...
    def ask_many(self, contexts: Any, masks: Any, items: Any) -> Any: ...
    def forbidden(self, asked: Any, actions: Mapping[int, Any]) -> int | None: ...
    def taken(self, asked: Any) -> Any: ...
    def some(self, asked: Any, places: Sequence[int]) -> Any: ...
    def shown(self, action: Any) -> Any: ...
    def choose(self, model: Model, number: int, asked: Any) -> Chosen: ...
    def lesson(self, action: Any) -> Any: ...
    def explain(self, store: Store, model: Model, asked: Any) -> Callable[[Any], Explanation]: ...
    def schema(self, log: Log, learned: Schema) -> Schema: ...
    def imported(self, log: Log) -> Imported: ...
    def compared(self, contexts: Sequence[bytes]) -> np.ndarray: ...
    def begin(self, model: Model) -> None: ...
    def warm_up(self, model: Model) -> Iterator[bool]: ...


class Asked(NamedTuple):
    """Arguments of a call for decisions."""

    rows: Rows
    mask: Any
    """as given"""
    lead: tuple[int, ...]
    """its axes before that of the ids"""

    @property
    def size(self) -> int:
        """Number of decisions."""
        return len(self.rows.packed)


class OfContexts:
    """What arms and points share."""

    portion = 256

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts

    def ask(self, context: Any, mask: Any, items: Any) -> Asked:
        if items is not None:
            raise no_catalog()
        return Asked(self._contexts.one(context), mask, ())

    def ask_many(self, contexts: Any, masks: Any, items: Any) -> Asked:
        if items is not None:
            raise no_catalog()
        rows = self._contexts.many(contexts)
        return Asked(rows, masks, (len(rows.packed),))

    def taken(self, asked: Asked) -> Asked:
        return asked

    def some(self, asked: Asked, places: Sequence[int]) -> Asked:
        return Asked(asked.rows.some(places), asked.mask, (len(places),))

    def compared(self, contexts: Sequence[bytes]) -> np.ndarray:
        return self._contexts.records(contexts)

    def begin(self, model: Model) -> None:
        model.begin(self._contexts.zeros())


class Points(OfContexts):
    """Points of a Box."""

    def __init__(self, contexts: Contexts, space: gym_spaces.Box) -> None:
        super().__init__(contexts)
        self._shape = space.shape

    def __str__(self) -> str:
        return "points of a Box"

    def restore(self, store: Store, outputs: int) -> None:
        pass

    def choose(self, model: Model, number: int, asked: Asked) -> Chosen:
        rows, count = asked.rows, asked.size
        self.forbidden(asked, {})
        if not count:
            return NOTHING
        values, propensities, _ = model.decide(number, rows.x, np.ones((count, 0), bool))
        written, none = split(values.astype(np.float32).tobytes(), count), [None] * count
        for value in (points := [value.copy() for value in values]):
            value.flags.writeable = False
        outside = self._contexts.looked(rows, model.belief.batch, model.belief.state)
        chances = propensities.tolist()
        return Chosen(points, rows.packed, none, written, chances, none, rows.clipped, outside=outside)

    def forbidden(self, asked: Asked, actions: Mapping[int, Any]) -> int | None:
        if asked.mask is not None:
            raise ValueError(f"the mask must be None, because actions are points of a Box; got {asked.mask!r:.80}")
        return None

    def lesson(self, action: bytes) -> np.ndarray:
        return np.frombuffer(action, np.float32).reshape(self._shape)  # not to be written to

    shown = lesson

    def explain(self, store: Store, model: Model, asked: Asked) -> Callable[[Any], Explanation]:
        raise TypeError(
            f"{model.agent.name} cannot explain how it would play: its actions are points of a Box, of which it tries "
            "some"
        )

    def schema(self, log: Log, learned: Schema) -> Schema:
        return log.schema

    def imported(self, log: Log) -> Imported:
        raise ValueError(f"the log has {log.num_actions} actions; this agent has 0 arms")

    def warm_up(self, model: Model) -> Iterator[bool]:
        return model.warm_up(self._contexts.zeros(), np.zeros(self._shape, np.float32))


class Plan(NamedTuple):
    """Output of another arm."""

    key: int
    """id of the arm"""
    name: Label
    outputs: int
    """of the model"""
    places: Mapping[int, int]
    """(id of an arm) -> its output; removed arms may have none"""
    keeps: bool
    """whether present outputs stay, so that a widened model need not learn again"""

    def arms(self, present: Mapping[int, Arm]) -> dict[int, Arm]:
        arms = {**present, self.key: Arm(self.name, None, removed=False)}
        return {
            key: Arm(arm.name, self.places.get(key), arm.removed or key not in self.places) for key, arm in arms.items()
        }


class Arms(OfContexts):
    """Arms with ids 0, 1, ..., each with a name and an output of the model; a removed arm may lose its output.

    Callers know names, the log and masks of bools ids. `names`: at first; without `named` they are numbers, and so are
    those that follow.
    """

    outputs: int
    """of the model"""
    owners: dict[int, int]
    """id of the arm of an output"""

    def __init__(self, contexts: Contexts, names: Sequence[Label], *, named: bool) -> None:
        super().__init__(contexts)
        self._first, self._named = len(names), named
        self._use({}, 0)

    def __str__(self) -> str:
        return f"{counted(len(self.live), 'arm')} of {counted(self.outputs, 'output')}"

    @property
    def live(self) -> tuple[Label, ...]:
        return tuple(arm.name for arm in self.arms.values() if not arm.removed)

    def restore(self, store: Store, outputs: int) -> None:
        self._use(store.arms(), outputs)

    def choose(self, model: Model, number: int, asked: Asked) -> Chosen:
        rows, count = asked.rows, asked.size
        if asked.mask is None:
            masks, shown = np.repeat(self._open[None], count, 0), [self._shown] * count
        else:
            allowed = self._allowed(asked.mask, asked.lead).reshape(count, len(self.arms))
            masks, shown = self._masks(allowed), split(allowed.tobytes(), count)
        if not count:
            return NOTHING
        values, propensities, every = model.decide(number, rows.x, masks)
        written = [self.owners[output] for output in values.tolist()]
        actions = [self.arms[key].name for key in written]
        probabilities: list[Any] = [None] * count
        if every is not None:
            by_id = np.zeros((count, len(self.arms)))
            by_id[:, list(self.owners.values())] = every[:, list(self.owners)]
            probabilities = list(map(tuple, by_id.tolist()))
        outside = self._contexts.looked(rows, model.belief.batch, model.belief.state)
        chances = propensities.tolist()
        return Chosen(actions, rows.packed, shown, written, chances, probabilities, rows.clipped, outside=outside)

    def taken(self, asked: Asked) -> Asked:
        return asked if asked.mask is None else asked._replace(mask=self._allowed(asked.mask, asked.lead))

    def some(self, asked: Asked, places: Sequence[int]) -> Asked:
        mask = None if asked.mask is None else self._allowed(asked.mask, asked.lead)[places]
        return super().some(asked, places)._replace(mask=mask)

    def forbidden(self, asked: Asked, actions: Mapping[int, int]) -> int | None:
        if asked.mask is None or not actions:
            return None
        allowed = self._given(asked.mask, asked.lead).reshape(asked.size, len(self.arms))
        return next((place for place, action in actions.items() if not allowed[place, action]), None)

    def shown(self, action: int) -> Label:
        return self.arms[action].name

    def lesson(self, action: int) -> int | None:
        return self.arms[action].output

    def imitated(self, chosen: Chosen, taken: Sequence[Taken]) -> Chosen:
        """What another rule decided, with the agent's laws, or else choices, as shadows.

        Raises ValueError for an arm that is not allowed.
        """
        written = [self._ids.get(one.arm, -1) if is_label(one.arm) else -1 for one in taken]
        for key, one, mask in zip(written, taken, chosen.masks, strict=True):
            assert mask is not None
            if key < 0 or not mask[key]:
                allowed = [arm.name for arm, free in zip(self.arms.values(), mask, strict=True) if free]
                raise ValueError(f"taken must be an arm that may be played here, one of {allowed}; got {one.arm!r:.80}")
        return chosen._replace(
            actions=[self.arms[key].name for key in written],
            written=written,
            propensities=[one.chance for one in taken],
            probabilities=[None] * len(taken),
            shadows=[
                tuple(float(key == own) for key in self.arms) if law is None else law
                for law, own in zip(chosen.probabilities, chosen.written, strict=True)
            ],
        )

    def check_control(self, control: Control) -> None:
        """Raises ValueError for an unknown arm."""
        if control.arm is not None and control.arm not in self._ids:
            raise ValueError(f"the arm of the control group must be one of {tuple(self._ids)}; got {control.arm!r}")

    def controlled(self, chosen: Chosen, control: Control, draws: Mapping[int, Sequence[int]]) -> Chosen:
        """What is decided where the control group's rule plays in some places, with random numbers from these seeds."""
        actions, written = list(chosen.actions), list(chosen.written)
        propensities, laws = list(chosen.propensities), list(chosen.probabilities)
        arm = None if control.arm is None else self._ids[control.arm]
        for place, seed in draws.items():
            law = law_of(arm, np.frombuffer(chosen.masks[place] or b"", bool))
            key = int(np.random.default_rng(seed).choice(len(law), p=law))
            actions[place], written[place] = self.arms[key].name, key
            propensities[place], laws[place] = float(law[key]), tuple(law.astype(np.float32).tolist())  # as logged
        return chosen._replace(actions=actions, written=written, propensities=propensities, probabilities=laws)

    def explain(self, store: Store, model: Model, asked: Asked) -> Callable[[Any], Explanation]:
        mask = self._masks(self._allowed(asked.mask, asked.lead)[None])[0]
        known = [arm for arm in self.arms.values() if not arm.removed]
        outputs = {arm.name: arm.output for arm in known if arm.output is not None}
        contexts, rows, middle = self._contexts, asked.rows, None
        if explanation.has_contributions(contexts.space):
            latest = contexts.unpack(store.latest(_LATEST) or rows.packed)
            middle = latest.mean(0, dtype=float).astype(latest.dtype)
        x = rows.x[0] if contexts.is_whole else {name: part[0] for name, part in rows.x.items()}
        state = model.copied()

        def explained(context: Any) -> Explanation:
            found = model.explained(state, x, mask, middle)
            return explanation.explain(outputs, found, x, contexts.encoder, context)

        return explained

    def expected(
        self, model: Model, contexts: Sequence[bytes], actions: Sequence[int], rewards: np.ndarray
    ) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
        """Expected and observed rewards of logged decisions, of arms with an output. Raises ValueError without any."""
        outputs = np.array([-1 if (output := self.arms[key].output) is None else output for key in actions], int)
        x, state, known = self._contexts.unpack(contexts), model.copied(), outputs >= 0
        if not known.any():
            raise ValueError("no decision has a reward yet that the belief could be compared with")

        def found() -> tuple[np.ndarray, np.ndarray]:
            some = x[known] if isinstance(x, np.ndarray) else {name: part[known] for name, part in x.items()}
            return model.expected(state, some, outputs[known]), rewards[known]

        return found

    def schema(self, log: Log, learned: Schema) -> Schema:
        own, given = tuple(self._ids), log.action_names
        if given is None:
            wanted = None if own == tuple(range(len(own))) else own
        elif self._named or not set(given).isdisjoint(own):
            wanted = own
        else:
            wanted = learned.action_names or given  # names outside the service of its arms, in their order
        return self._contexts.schema(learned)._replace(action_names=wanted)

    def imported(self, log: Log) -> Imported:
        rows = self._contexts.clipped(self._contexts.of_log(log))
        if log.num_actions > len(self.arms):
            raise ValueError(f"the log has {log.num_actions} actions; this agent has {len(self.arms)} arms")
        return Imported(rows, split(log.mask.tobytes(), len(log)), log.action.tolist())

    def warm_up(self, model: Model) -> Iterator[bool]:
        return model.warm_up(self._contexts.zeros(), np.int32(0))

    def plan(self, name: Label | None, *, can_widen: bool) -> Plan:
        """Raises TypeError or ValueError for a name that no other arm can have."""
        name = self._next_name() if name is None else label("the name of an arm", name)
        key, outputs = self._ids.get(name, len(self.arms)), self.outputs
        alike = [other for other in self._ids if str(other) == str(name)]
        if name in self.live or alike not in ([], [name]):
            raise ValueError(f"there is an arm {alike[0]!r} already, one of {self.live}: names differ, also as text")
        if not self._named and key == len(self.arms) and name != self._next_name():
            raise ValueError(f"the arms have numbers, the next of which is {self._next_name()}; got {name!r}")
        places = {key: arm.output for key, arm in self.arms.items() if arm.output is not None}
        if key in places:
            return Plan(key, name, outputs, places, keeps=True)
        free = next((output for output in range(outputs) if output not in places.values()), None)
        is_new = key == len(self.arms)  # else its earlier rewards have to be learned again
        if free is not None and is_new:
            return Plan(key, name, outputs, {**places, key: free}, keeps=True)
        live = [*self._ids_of(self.live), key]
        if 2 * len(live) > outputs and can_widen and is_new:
            return Plan(key, name, 2 * outputs, {**places, key: outputs}, keeps=True)
        outputs = outputs if 2 * len(live) <= outputs else 2 * outputs
        return Plan(key, name, outputs, dict(zip(live, range(len(live)), strict=True)), keeps=False)

    def without(self, arm: Any) -> dict[int, Arm]:
        """Raises TypeError or ValueError for an unknown arm or the only one."""
        if label("arm", arm) not in self.live or len(self.live) == 1:
            raise ValueError(f"arm must be one of {self.live}, of which one has to stay; got {arm!r}")
        key = self._ids[arm]
        return {**self.arms, key: self.arms[key]._replace(removed=True)}

    def _next_name(self) -> int:
        """The number of the next arm. Raises TypeError where arms have names."""
        last = self.arms[len(self.arms) - 1].name
        if self._named or not isinstance(last, int):
            raise TypeError(f"the arms have names, {self.live}: give the new one a name, add_arm(name)")
        return last + 1

    def _ids_of(self, names: Iterable[Any]) -> list[int]:
        """Raises ValueError for an unknown name."""
        given = list(names)
        if unknown := [name for name in given if not is_label(name) or name not in self._ids]:
            raise ValueError(f"the mask must hold names of arms, {self.live}; got {unknown[0]!r}")
        return [self._ids[name] for name in given]

    def _use(self, arms: Mapping[int, Arm], outputs: int) -> None:
        self.arms, self._ids = dict(arms), {arm.name: key for key, arm in arms.items()}
        self._live = np.array([not arm.removed for arm in arms.values()], bool)
        self.owners = {arm.output: key for key, arm in arms.items() if arm.output is not None}
        self.outputs, self._shown = outputs, self._live.tobytes()
        self._open = self._masks(self._live[None])[0]

    def _masks(self, allowed: np.ndarray) -> np.ndarray:
        """(n, outputs) bool of (n, ids)."""
        masks = np.zeros((len(allowed), self.outputs), bool)
        masks[:, list(self.owners)] = allowed[:, list(self.owners.values())]
        return masks

    def _bools(self, mask: Any) -> Any:
        """(ids,) bool of a collection of names, or of a dict or Series of bools by name; others as they are."""
        if hasattr(mask, "to_dict") and getattr(mask, "dtype", None) == np.bool_:
            mask = mask.to_dict()
        if isinstance(mask, Mapping):
            mask = {name for name, allowed in mask.items() if allowed}
        if isinstance(mask, str) or not isinstance(mask, Collection) or getattr(mask, "dtype", None) == np.bool_:
            return mask
        names = list(mask)
        if not isinstance(mask, AbstractSet) and not any(map(_is_name, names)):
            return mask
        allowed = np.zeros(len(self.arms), bool)
        allowed[self._ids_of(names)] = True
        return allowed

    def _allowed(self, mask: Any, lead: tuple[int, ...]) -> np.ndarray:
        """(*lead, ids) bool, without removed arms."""
        live = self._live
        if mask is None:
            return np.broadcast_to(live, (*lead, len(live)))
        allowed = self._given(mask, lead) & live
        if not allowed.any(-1).all():
            raise ValueError(f"the mask must allow at least one of the arms {self.live}; got {mask!r:.80}")
        return allowed

    def _given(self, mask: Any, lead: tuple[int, ...]) -> np.ndarray:
        """(*lead, ids) bool; arms added after a mask was made are not allowed."""
        live = self._live
        if lead and isinstance(mask, list | tuple):
            bools = [live if one is None else self._bools(one) for one in mask]
        else:
            bools = by_action("the mask", mask, list(self._ids)) if lead else self._bools(mask)
        given = np.asarray(checks.as_array("the mask", bools))
        sizes = range(self._first, len(live) + 1)
        right = given.dtype == bool and given.ndim == len(lead) + 1
        if not right or given.shape[:-1] != lead or given.shape[-1] not in sizes:
            raise ValueError(
                f"the mask must be bool of shape {(*lead, len(live))}, an entry for each arm that ever was, or a set "
                f"of names{' in each row' if lead else ''}; got {given.dtype} of shape {given.shape}"
            )
        allowed = np.zeros((*lead, len(live)), bool)
        allowed[..., : given.shape[-1]] = given
        return allowed


def _is_name(value: Any) -> bool:
    """Whether an entry of a mask is a name: a text, or a number that is no bool by another name."""
    return isinstance(value, str | int | np.integer) and value not in (0, 1)


def is_label(name: Any) -> bool:
    """Whether it can be a name; True is not 1."""
    return isinstance(name, str | int | np.integer) and not isinstance(name, bool)


def label(called: str, name: Any) -> Label:
    """A name. Raises TypeError for what is neither a text nor an integer."""
    if not is_label(name):
        raise TypeError(f"{called} must be a text or an integer; got {name!r:.80}")
    return str(name) if isinstance(name, str) else int(name)


def no_catalog() -> TypeError:
    """Error of a call that needs items."""
    return TypeError("items need a catalog: make the agent with a seqdec.service.Catalog as its spaces")
