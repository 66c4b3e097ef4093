"""The arms of a service, and the outputs of its model: where none is free for another arm, a wider model takes over.

What the wider one knows is computed beside the belief that serves, from the same log: calls go on meanwhile, and what
they report is learned by both. Nothing of it is in the log until it takes over, in one transaction.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import checks
from seqdec.online.learner import Belief, Learner
from seqdec.online.tables import Arm
from seqdec.online.turns import exclusive
from seqdec.online.upkeep import Upkeep

_FEW = 16
"""Batches of the log that a wider model learns when it takes over, at most."""
_SOME = 64
"""Batches that it reads at once."""


class Plan(NamedTuple):
    """How another arm gets an output."""

    key: int
    """of the arm"""
    outputs: int
    """of the model"""
    places: Mapping[int, int]
    """(id of an arm) -> its output; arms without one are those that were removed"""
    generation: int
    """of the model"""
    known: Belief | None
    """a copy of the present belief, where the wider model can have all of it; None: it learns the whole log"""

    def arms(self, present: Mapping[int, Arm]) -> dict[int, Arm]:
        """The arms with their outputs, those that were removed meanwhile too."""
        arms = {**present, self.key: Arm(None, removed=False)}
        return {key: Arm(self.places.get(key), arm.removed or key not in self.places) for key, arm in arms.items()}


class Arms(Upkeep):
    """An agent whose arms come and go."""

    @property
    def arms(self) -> tuple[int, ...]:
        """The ids of the arms that may be played; empty for points of a Box and items of a catalog."""
        return tuple(key for key, arm in self._arms.items() if not arm.removed)

    def _grown(self) -> int:
        """Admit another arm; for one thread at a time. Returns its id."""
        plan = self._planned()
        if isinstance(plan, int):
            return plan
        learner = self._made(self._agent(plan.outputs), plan.outputs, plan.generation)
        if plan.known is not None and learner.agent.widened is not None:
            learner.belief = Belief(jax.jit(learner.agent.widened)(plan.known.state), plan.known.batch)
        learner.warm_up(self._record, 0)
        while True:
            lessons = self._ahead_of(learner, plan)
            if lessons is None:
                break
            learner.learn(lessons)
        self._try_snapshot()
        return plan.key

    @exclusive
    def _planned(self) -> int | Plan:
        """The id of a new arm, where an output is free; else how it gets one."""
        key, outputs = len(self._arms), self._learner.outputs
        places = {k: arm.output for k, arm in self._arms.items() if arm.output is not None}
        free = next((output for output in range(outputs) if output not in places.values()), None)
        if free is not None:
            self._describe(self._learner, {**self._arms, key: Arm(free, removed=False)})
            return key
        live, generation = [*self.arms, key], self._learner.generation + 1
        if 2 * len(live) > outputs and self._learner.agent.widened is not None:
            belief = self._learner.belief
            known = Belief(self._learner.copied(), belief.batch)
            return Plan(key, 2 * outputs, {**places, key: outputs}, generation, known)
        outputs = outputs if 2 * len(live) <= outputs else 2 * outputs
        return Plan(key, outputs, dict(zip(live, range(len(live)), strict=True)), generation, None)

    @exclusive
    def _ahead_of(self, learner: Learner, plan: Plan) -> Any:
        """The next batches of the log; where they are few, the wider model learns them and takes over: None."""
        arms = plan.arms(self._arms)
        if self._journal.batches - learner.belief.batch > _FEW:
            return self._lessons(learner, arms, _SOME)
        self._catch_up(learner, arms)
        self._describe(learner, arms)
        return None

    def _check_arms(self) -> None:
        candidates = isinstance(self._spaces.observation_space, gym_spaces.Dict)
        if candidates or not self._arms:
            kind = "candidates, which a mask allows or not" if candidates else "points of a Box"
            kind = kind if self._catalog is None else "items: use add_items and remove_items"
            raise TypeError(f"arms can be added and removed where actions have an index; here they are {kind}")

    def _allowed(self, mask: Any, lead: tuple[int, ...]) -> np.ndarray:
        """(*lead, ids) bool, whether each arm may be played; an arm that was added after a mask was made may not."""
        live = np.array([not arm.removed for arm in self._arms.values()], bool)
        if mask is None:
            return np.broadcast_to(live, (*lead, len(live)))
        given = np.asarray(checks.as_array("the mask", mask))
        sizes = range(self._first, len(live) + 1)
        if (
            given.dtype != bool
            or given.ndim != len(lead) + 1
            or given.shape[:-1] != lead
            or given.shape[-1] not in sizes
        ):
            raise ValueError(
                f"the mask must be bool of shape {(*lead, len(live))}, an entry for each id of an arm; "
                f"got {given.dtype} of shape {given.shape}"
            )
        allowed = np.zeros((*lead, len(live)), bool)
        allowed[..., : given.shape[-1]] = given
        allowed &= live
        if not allowed.any(-1).all():
            raise ValueError(f"the mask must allow at least one of the arms {self.arms}; got {mask!r:.80}")
        return allowed
