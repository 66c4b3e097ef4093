"""Bodies of requests and answers: what /openapi.json describes."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from seqdec.serve.config import Declaration, Label, Name, Strict
from seqdec.service.store import LONGEST_KEY

Number = Annotated[float, Field(strict=True)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_KEY)]
Cell = str | bool | int | float | None
Row = dict[str, Cell | list[str | int | float]]
"""Columns by name."""
Context = Row | list[Number] | None
Token = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Result = Literal["learned", "collected", "repeated", "expired", "unknown", "rejected", "removed", "withdrawn"]


class Question(Strict):
    """A context, and among what to choose: the mask of arms, or items (of a catalog); none: all."""

    context: Context = None
    mask: list[Label] | None = None
    items: list[Label] | None = None


Chance = Annotated[float, Field(strict=True, gt=0, le=1)]


class AskRow(Question):
    """A decision to make; of an apprentice, `taken` is the arm that today's rule plays, with its chance.

    `unit`: where there is a control group, whom the decision is for.
    """

    key: Text | None = None
    unit: Text | None = None
    taken: Label | None = None
    chance: Chance = 1.0


class Ask(AskRow):
    """A decision to make; the same key, of at most 200 characters, gets the first answer."""

    active: bool = True
    """False: it takes no rewards, nor the default, before `activate`"""


class AskMany(Strict):
    """Decisions to make by one belief, all or none; with keys for all or none."""

    rows: Annotated[list[AskRow], Field(min_length=1)]
    active: bool = True


class Decided(Strict):
    """The action, its probability (null where not known), and the token to report its reward."""

    action: Any
    propensity: float | None
    token: str


class DecidedMany(Strict):
    """As asked."""

    decisions: list[Decided]


class Report(Strict):
    """A reward, or named rewards; a report with an id that was sent before is not counted again."""

    token: Token
    reward: Number | dict[str, Number]
    id: Text | None = None


class ReportMany(Strict):
    """Several reports."""

    reports: Annotated[list[Report], Field(min_length=1)]


class Learned(Strict):
    """What happened to a report."""

    result: Result


class LearnedMany(Strict):
    """As reported."""

    results: list[Result]


class OfToken(Strict):
    """A decision."""

    token: Token


class Settled(Strict):
    """What happened to a decision."""

    result: str


class Belief(Strict):
    """Of one action: expected reward, deviation, probability of being chosen, contributions of columns."""

    action: Any
    mean: float | None
    deviation: float | None
    probability: float | None
    baseline: float | None
    contributions: dict[str, float | None]


class Explained(Strict):
    """The belief about every action in a context."""

    actions: list[Belief]


class Alarm(Strict):
    """Something to look at: of reports, choices, levels, missing or clipped values, drift or delays."""

    kind: str
    subject: str
    observed: str
    cause: str
    action: str


class ArmFound(Strict):
    """An arm in the latest decisions: its reward with a 95% interval, as `comparison` says."""

    arm: Any
    decisions: int
    share: float | None
    reward: float | None
    low: float | None
    high: float | None
    least_propensity: float | None


class DecisionFound(Strict):
    """A decision in the log."""

    number: str
    time: str
    action: Any
    propensity: float | None
    reward: float | None
    source: str | None


class Diagnosed(Strict):
    """What the latest decisions say: what to look at, facts, arms, and the last decisions."""

    latest: int
    alarms: list[Alarm]
    facts: list[str]
    comparison: str
    arms: list[ArmFound]
    decisions: list[DecisionFound]


class Compared(Strict):
    """Whether the agent earns more than another rule, or its challenger than the agent, in the later half of the log.

    decision: better, worse, no difference shown, or cannot decide; reward per decision, with 95% interval.
    """

    decision: str
    verdict: str
    difference: float | None
    low: float | None
    high: float | None
    warnings: list[str]


class Ends(Strict):
    """A value with the ends of its interval."""

    value: float
    low: float
    high: float


class ArmCompared(Strict):
    """An arm in all decisions; the ends of its difference to the reference arm hold for all arms at all times.

    reward: as if the arm were always played, with its standard error; best: probability of being best; loss: expected
    per decision, of always playing it from now on.
    """

    arm: Label
    decisions: int
    share: float
    reward: float | None
    std_error: float | None
    best: float
    loss: float
    difference: Ends


class SegmentCompared(Strict):
    """The arms in a level of a column."""

    segment: str
    arms: list[ArmCompared]


class Answer(Strict):
    """To a question that may be asked at any time: `decided` says that one may stop, at 95%.

    rows: decisions that count, or units of a control group; difference: reward per decision; total: in sum.
    """

    question: str
    verdict: str
    decided: bool
    rows: int
    difference: Ends | None
    total: Ends | None
    arms: list[ArmCompared]
    segments: list[SegmentCompared]


class Reported(Strict):
    """Answers about the arms, the control group and the challenger; null where there is none."""

    arms: Answer | None
    control: Answer | None
    challenger: Answer | None


class OfArm(Strict):
    """An arm."""

    name: Label


class Items(Strict):
    """Features by id: numbers, or columns by name."""

    items: Annotated[dict[str, Row | list[Number]], Field(min_length=1)]


class OfItems(Strict):
    """Ids of items."""

    ids: Annotated[list[Label], Field(min_length=1)]


class Forget(Strict):
    """Keys, what stands before a "/" of keys, or tokens; and all that is older than so many seconds."""

    keys: tuple[Text, ...] = ()
    older_than: Annotated[float, Field(strict=True, gt=0)] | None = None


class Forgotten(Strict):
    """How many decisions have no context any more."""

    count: int


class Compact(Strict):
    """The age in seconds from which on decisions are removed from the log."""

    older_than: Annotated[float, Field(strict=True, gt=0)]


class Compacted(Strict):
    """How many decisions were removed."""

    count: int


class Restore(Strict):
    """Whether the log is learned again, where it was learned by another declaration."""

    relearn: bool = False


class New(Strict):
    """A deployment to create."""

    name: Name
    declaration: Declaration


class About(Strict):
    """A deployment: opening, open, archived or failed, for a reason."""

    name: str
    state: Literal["opening", "open", "archived", "failed"]
    reason: str
    declaration: Declaration
    imitates: bool = False
    """whether it is an apprentice that has not taken over"""
    took_over: bool = False
    """whether an apprentice or a challenger has"""
    arms: tuple[Label, ...] = ()
    items: int = 0
    counts: dict[str, int] | None = None


class Deployed(Strict):
    """All deployments."""

    deployments: list[About]


class Health(Strict):
    """Whether the server lives, or is ready."""

    status: str


class Refusal(Strict):
    """Why a request was not answered."""

    error: str


class Nothing(Strict):
    """An empty object."""
