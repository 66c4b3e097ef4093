"""Anytime-valid report of a service's log: which arm is best, and what the agent or a challenger earns.

Decisions count in the order in which their rewards were learned, so that the rows grow only at their end, as sequences
that hold at all times (`seqdec.ope.sequences`) need. With a window that is its end, for clicks and defaults alike;
without one, the time that a reward takes must not depend on the reward.

The control group is drawn once for each unit, so that units are independent, and decisions of one unit are not. Of each
unit the rewards of its first decisions within some time count as one row, from the end of that time on, in the order of
the first decisions. Of such rows, the agent and the control group are two arms (`seqdec.ope.compare_arms`), whose
difference may move, such as that of an agent which learns. With one decision of each unit this is exact, because its
group is independent of all that was before. With several, it is as exact as rewards of a unit are independent of the
groups of units that begin while it is counted, which change them through what the agent learns only.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqdec.features import Encoder
from seqdec.features.kinds import Bool, Categorical, Ordered
from seqdec.ope.arms import compare_arms
from seqdec.ope.comparison import Estimate, compare
from seqdec.ope.diagnostics import range_of
from seqdec.ope.intervals import Ends
from seqdec.ope.log import Log, make_log
from seqdec.registry import unknown
from seqdec.service import rewards
from seqdec.service.database import Database
from seqdec.service.logs import Laws, Pairs, joined, policy_of
from seqdec.service.store import Unit

if TYPE_CHECKING:
    import pandas as pd

QUESTIONS: Mapping[str, str] = {
    "arms": "Which arm earns most?",
    "control": "What has the agent earned over its control group?",
    "challenger": "Would the challenger have earned more than the agent?",
}
_SEGMENTS = 20
"""Most of them."""
_FLAGS = {"true": 1, "false": 0}
_SECOND = 10**9


class Answer(NamedTuple):
    """Answer to one of `QUESTIONS`; its interval holds at 95% at all times together."""

    question: str
    verdict: str
    decided: bool
    """whether the ends say so: one may stop"""
    rows: int = 0
    """decisions that count; of a control group units"""
    difference: Estimate | None = None
    """reward per decision of the agent less control, or of the challenger less the agent"""
    total: Estimate | None = None
    """reward that the agent has earned over control in all decisions that count"""
    arms: "pd.DataFrame | None" = None
    """the table of `seqdec.ope.compare_arms`"""
    segments: "pd.DataFrame | None" = None
    """such tables by segment"""


class Report(NamedTuple):
    """Answers from a log; None without arms, control group or challenger."""

    arms: Answer | None
    control: Answer | None
    challenger: Answer | None

    @property
    def facts(self) -> list[str]:
        """Questions with their answers."""
        return [f"{one.question} {one.verdict}" for one in self if one is not None]

    def __str__(self) -> str:
        return "\n".join(self.facts)


class Units(NamedTuple):
    """Of each unit the first `most` decisions count, at most `within` seconds after the first of them."""

    most: int = 1
    within: float = 0.0


_FIRST = Units()


def report_of(
    database: Database,
    laws: Laws | None = None,
    *,
    reward_range: Ends | None = None,
    segments: Sequence[str] = (),
    units: Units = _FIRST,
) -> Report:
    """The report of a log; `laws` of a challenger. Raises ValueError for columns without segments."""
    encoder = _encoder(database) if segments else None
    if encoder is not None:
        check_segments(encoder, segments)
    if not database.arms():
        return Report(None, None, None)
    groups = database.units()
    pairs = database.rewarded("WHERE rewards.number > 0 ORDER BY rewards.sequence", ())
    own = functools.cache(lambda: _own(database, pairs, groups))

    def arms() -> Answer:
        log = own()[0]
        by = None if encoder is None else segments_of(encoder, segments, log.context)
        found = compare_arms(log, reward_range=reward_range, by=by)
        tables = {"arms": found.table, "segments": found.segments}
        return Answer(QUESTIONS["arms"], found.verdict, found.best is not None, len(log), **tables)

    return Report(
        _answered("arms", arms),
        _answered("control", lambda: _earned(database, pairs, groups, reward_range, units)) if groups else None,
        None if laws is None else _answered("challenger", lambda: _challenged(*own(), laws, reward_range)),
    )


def segments_of(encoder: Encoder, columns: Sequence[str], x: np.ndarray) -> dict[str, np.ndarray]:
    """(n,) bool of rows (n, d) by segment, a level of a column. Raises ValueError for a column without levels."""
    found: dict[str, np.ndarray] = {}
    for column in columns:
        if column not in encoder.columns:
            raise ValueError(unknown("column", column, encoder.columns))
        kind, at = encoder.kinds[column], encoder.column_of.index(column)
        if isinstance(kind, Categorical):
            found |= {f"{column}={level}": x[:, at + place] == 1 for place, level in enumerate(kind.levels)}
        elif isinstance(kind, Ordered):
            ranks = np.linspace(-1, 1, len(kind.levels))
            own = x[:, at + 1 : at + 3].sum(axis=1) == 0
            found |= {
                f"{column}={level}": own & np.isclose(x[:, at], rank)
                for level, rank in zip(kind.levels, ranks, strict=True)
            }
        elif isinstance(kind, Bool):
            found |= {f"{column}={name}": (x[:, at] == value) & (x[:, at + 1] == 0) for name, value in _FLAGS.items()}
        else:
            raise ValueError(f"the column {column} has no levels: name one that is categorical, ordered, tags or bool")
    return found


def check_segments(encoder: Encoder, columns: Sequence[str]) -> None:
    """Raises ValueError for columns without levels, or too many levels."""
    found = segments_of(encoder, columns, np.zeros((0, len(encoder.names))))
    if len(found) > _SEGMENTS:
        raise ValueError(f"at most {_SEGMENTS} segments can be compared, whose ends hold together; got {len(found)}")


def _answered(name: str, answer: Callable[[], Answer]) -> Answer:
    """The answer, or why there is none."""
    try:
        return answer()
    except ValueError as error:
        return Answer(QUESTIONS[name], f"Cannot decide: {error}.", decided=False)


def _own(database: Database, pairs: Pairs, groups: Mapping[int, Unit]) -> tuple[Log, list[int]]:
    """The agent's own decisions, and their numbers, in the order of learning. Raises ValueError."""
    log, numbers, shadows, sequences = joined(database, pairs)
    others = {number for number, unit in groups.items() if unit.is_control}
    places = [
        place for place in np.argsort(sequences).tolist() if shadows[place] is None and numbers[place] not in others
    ]
    if not places:
        raise ValueError("no decision of the agent has a reward yet")
    return log[np.array(places)], [numbers[place] for place in places]


def _challenged(log: Log, numbers: Sequence[int], laws: Laws, bounds: Ends | None) -> Answer:
    """By a challenger, in the decisions that it has learned."""
    places = [place for place, number in enumerate(numbers) if number in laws]
    if not places:
        raise ValueError("the challenger has learned no reward yet")
    target = policy_of([laws[numbers[place]] for place in places], log.num_actions)
    found = compare(log[np.array(places)], target, seed=0, reward_range=bounds, anytime=True)
    decided = found.decision in ("better", "worse")
    return Answer(QUESTIONS["challenger"], found.verdict, decided, len(places), found.difference)


def _earned(database: Database, pairs: Pairs, groups: Mapping[int, Unit], bounds: Ends | None, units: Units) -> Answer:
    """Of the agent over its control group."""
    window, weights = (database.facts().get(name) for name in ("reward_after", "reward_weights"))
    if units.most > 1 and window is None:
        raise ValueError("several decisions of a unit count once all their rewards are known: give rewards a window")
    rows = [(groups[reward[1]], reward, decision[1]) for reward, decision in pairs if reward[1] in groups]
    activated: dict[Any, Any] = dict(database.rows("deferred"))  # pyright: ignore
    begun = [activated.get(reward[1]) or time for _, reward, time in rows]
    found: dict[bytes, list[int]] = {}
    for place, (unit, *_) in enumerate(rows):
        own = found.setdefault(unit.digest, [])
        if len(own) < units.most and (not own or begun[place] <= begun[own[0]] + units.within * _SECOND):
            own.append(place)
    ripe = max(begun, default=0) - units.within * _SECOND
    counted = [own for own in found.values() if units.most == 1 or begun[own[0]] < ripe]
    if not counted:
        raise ValueError("no unit has all its rewards yet")
    first = [rows[own[0]][0] for own in counted]
    is_agent, share = np.array([not unit.is_control for unit in first]), np.array([unit.share for unit in first])
    worths = np.array([rewards.worth(reward[3], weights) for _, reward, _ in rows])
    bounds = range_of(bounds, worths)
    if bounds is None:
        raise ValueError("the range of possible rewards is not known: pass reward_range=(low, high)")
    others = np.where(is_agent, 1 - share, share)
    log = make_log(
        action=is_agent * 1,
        reward=[worths[own].sum() for own in counted],
        propensity=share,
        logging=np.stack([others, 1 - others], axis=1),
        action_names=("control", "agent"),
    )
    ends = min(bounds[0], units.most * bounds[0]), max(bounds[1], units.most * bounds[1])
    table: Any = compare_arms(log, baseline="control", reward_range=ends).table
    by_unit = table.loc["agent", ["difference", "low", "high"]].to_numpy(float)
    count = int(is_agent.sum())
    decisions = sum(len(own) for own, of_agent in zip(counted, is_agent, strict=True) if of_agent)
    each, total = (Estimate(*(factor * by_unit).tolist()) for factor in (count / max(decisions, 1), count))
    decided = each.low > 0 or each.high < 0
    said = "Not decided, agent less control" if not decided else f"{'More' if each.low > 0 else 'Less'} than control"
    verdict = (
        f"{said}: {each} per decision, {total} in all; {count:,} units of the agent, {len(log) - count:,} of control."
    )
    return Answer(QUESTIONS["control"], verdict, decided, len(log), each, total)


def _encoder(database: Database) -> Encoder:
    """Of the contexts. Raises ValueError."""
    text = database.facts().get("encoder")
    if not isinstance(text, str):
        raise ValueError("segments are levels of columns, and this agent has no encoder of columns")
    return Encoder.from_json(text)
