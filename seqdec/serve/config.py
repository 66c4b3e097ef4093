"""The settings of a server: TOML files and their declarations.

Declarations name agents and policies that registries hold; "module:function", which would import code, needs `trust`.
"""

import difflib
import ipaddress
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from seqdec import agents
from seqdec.features import Encoder, kinds
from seqdec.persistence import located, read_text
from seqdec.plugins import check_registered, is_reference
from seqdec.registry import unknown
from seqdec.service.report import check_segments, segments_of

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=256)] | Annotated[int, Field(strict=True)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Level = bool | int | float | str
Seconds = Annotated[float, Field(gt=0, le=1e9)]
Role = Literal["reader", "decider", "operator"]
_SECRET = re.compile(r"://|:.*@|passw\w*\s*=", re.IGNORECASE)
"""In the place of a database, which may have a password."""


class Strict(BaseModel):
    """Refuses unknown fields, NaN and infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Range(Strict):
    """A range of numbers, standardized as if all of it were equally likely."""

    low: float
    high: float

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high; got {self.low} and {self.high}")
        return self

    def standard(self) -> tuple[float, float]:
        """Mean and standard deviation of the uniform distribution."""
        return self.low / 2 + self.high / 2, self.high / math.sqrt(12) - self.low / math.sqrt(12)


class Number(Range):
    """A number in a range."""

    kind: Literal["numeric"]

    def of(self) -> kinds.Kind:
        return kinds.Numeric(*self.standard())


class Vector(Range):
    """A list of `size` numbers in a range."""

    kind: Literal["vector"]
    size: Count

    def of(self) -> kinds.Kind:
        mean, std = self.standard()
        return kinds.Vector([mean] * self.size, [std] * self.size)


class Date(Strict):
    """A date or time, as ISO 8601, by its cycles."""

    kind: Literal["date"]
    yearly: bool = False

    def of(self) -> kinds.Kind:
        return kinds.Date(self.yearly)


class Days(Strict):
    """A date in a range, as a number."""

    kind: Literal["days"]
    low: date
    high: date

    def of(self) -> kinds.Kind:
        days = Range(low=self.low.toordinal(), high=self.high.toordinal())
        return kinds.Days(*days.standard())


class Flag(Strict):
    """True or false."""

    kind: Literal["bool"]

    def of(self) -> kinds.Kind:
        return kinds.Bool()


class Levels(Strict):
    """One of known levels (categorical, or from the lowest to the highest: ordered), or a list of them (tags)."""

    kind: Literal["categorical", "ordered", "tags"]
    levels: Annotated[list[str | int | float], Field(min_length=1)]

    def of(self) -> kinds.Kind:
        return kinds.KINDS[self.kind](self.levels)  # pyright: ignore[reportCallIssue] (of these kinds)


class Buckets(Strict):
    """A text of words, one level or a list of levels, hashed to so many features."""

    kind: Literal["text", "hashed", "hashed_tags"]
    buckets: Annotated[int, Field(gt=0, le=2**16)] = 64

    def of(self) -> kinds.Kind:
        return kinds.KINDS[self.kind](self.buckets)  # pyright: ignore[reportCallIssue] (of these kinds)


Column = Annotated[Number | Vector | Date | Days | Flag | Levels | Buckets, Field(discriminator="kind")]


class Features(Strict):
    """Declared columns, the encoder of columns (in a file: its path), or `size` plain numbers from low to high."""

    columns: Annotated[dict[str, Column], Field(min_length=1)] | None = None
    encoder: dict[str, Any] | None = None
    size: Count | None = None
    low: float = -5.0
    high: float = 5.0

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(part is not None for part in (self.columns, self.encoder, self.size)) != 1:
            raise ValueError("declare either columns, or an encoder, or the size of a list of numbers")
        Range(low=self.low, high=self.high)
        self.made()
        return self

    def made(self) -> Encoder | None:
        """The encoder; None for plain numbers."""
        if self.columns is not None:
            return Encoder({name: column.of() for name, column in self.columns.items()})
        return None if self.encoder is None else Encoder.from_json(json.dumps(self.encoder))


class Box(Strict):
    """Actions that are points: an entry for each number."""

    low: Annotated[list[float], Field(min_length=1)]
    high: Annotated[list[float], Field(min_length=1)]

    @model_validator(mode="after")
    def _alike(self) -> Self:
        if len(self.low) != len(self.high):
            raise ValueError(f"low and high must be equally long; got {len(self.low)} and {len(self.high)} numbers")
        for low, high in zip(self.low, self.high, strict=True):
            Range(low=low, high=high)
        return self


class Reward(Strict):
    """What a reward may be, and what is learned where none is reported in time."""

    low: float | None = None
    high: float | None = None
    default: float | None = None

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.low is not None and self.high is not None:
            Range(low=self.low, high=self.high)
        if self.default is not None:
            self.check("the default reward", self.default)
        return self

    def check(self, called: str, value: float) -> None:
        """Raises ValueError beyond the bounds."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low <= value <= high:
            raise ValueError(f"{called} must be from {low:g} to {high:g}; got {value:g}")


class NamedReward(Reward):
    """One of several rewards, and its weight in what is learned."""

    weight: float


class Rewards(Reward):
    """One reward or several with names; `window`: seconds after which the default, or those collected, are learned."""

    window: Positive | None = None
    combine: Literal["first", "sum", "last", "max"] = "first"
    expire_after: Positive | None = None
    names: dict[Name, NamedReward] = {}

    @model_validator(mode="after")
    def _names_or_one(self) -> Self:
        if self.names and not self.low == self.high == self.default is None:
            raise ValueError("low, high and default belong to each of the names")
        defaults = [one.default for one in (*self.names.values(), self) if one.default is not None]
        if self.window is None and (defaults or self.combine != "first"):
            raise ValueError("default and combine require a window: the seconds in which a decision accepts rewards")
        if self.window is not None and self.combine == "first" and not (defaults or self.names):
            raise ValueError("a window requires a default, such as 0, or combine = sum, last or max")
        return self

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Of what is learned; None where they are not declared."""
        weighted = [(1.0, self), *((one.weight, one) for one in self.names.values())][bool(self.names) :]
        if any(one.low is None or one.high is None for _, one in weighted):
            return None
        ends = [sorted((weight * (one.low or 0), weight * (one.high or 0))) for weight, one in weighted]
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    def check_reported(self, reward: float | Mapping[str, float]) -> None:
        """Raises ValueError for an unknown name, or a reward beyond its bounds."""
        if isinstance(reward, Mapping) != bool(self.names):
            wanted = f"an object with some of {', '.join(self.names)}" if self.names else "a number"
            raise ValueError(f"the reward must be {wanted}; got {reward!r:.80}")
        if not isinstance(reward, Mapping):
            return self.check("the reward", reward)
        for name, value in reward.items():
            if name not in self.names:
                raise ValueError(f"there is no reward {name!r:.80}; the names are {', '.join(self.names)}")
            self.names[name].check(f"the reward {name!r}", value)
        if self.window is None and (missing := [name for name in self.names if name not in reward]):
            raise ValueError(f"the reward lacks {', '.join(missing)}: report all names at once, or declare a window")


class ControlGroup(Strict):
    """A share of the units for which one arm is played, or without it any arm."""

    share: Annotated[float, Field(gt=0, lt=1)]
    arm: Label | None = None


class Player(Strict):
    """An agent by name, and its settings."""

    agent: str
    settings: dict[str, bool | int | float | str] = {}

    @model_validator(mode="after")
    def _known(self) -> Self:
        if not is_reference(self.agent):
            agents.REGISTRY[self.agent]  # raises ValueError, with a suggestion
        return self


class Floor(Strict):
    """A share of uniform decisions, that falls with the number of rewards to this power; as `agents.exploring`."""

    share: Share = 1.0
    power: Annotated[float, Field(ge=0)] = 0.24


class Shares(Strict):
    """The least and the largest probability of each arm in any context, for all or by arm; as `agents.guarded`."""

    floor: Share | dict[str, Share] = 0.0
    ceiling: Share | dict[str, Share] = 1.0

    def of(self, arms: Sequence[Any]) -> tuple[Any, Any]:
        """Floors and ceilings of arms. Raises ValueError for an unknown arm, or where no probabilities keep them."""
        low, high = _by_arm("floor", self.floor, arms, 0.0), _by_arm("ceiling", self.ceiling, arms, 1.0)
        least, most = (given if isinstance(given, list) else [given] * len(arms) for given in (low, high))
        if any(a > b for a, b in zip(least, most, strict=True)) or sum(least) > 1 or sum(most) < 1:
            raise ValueError(f"no probabilities of {len(arms)} arms satisfy the floors {least} and the ceilings {most}")
        return low, high


def _by_arm(called: str, given: Any, arms: Sequence[Any], otherwise: float) -> Any:
    """One number, or a list by arm. Raises ValueError for an unknown arm."""
    if not isinstance(given, dict):
        return given
    names = list(map(str, arms))
    for name in given:
        if name not in names:
            raise ValueError(unknown(f"arm of {called}", name, names))
    return [given.get(name, otherwise) for name in names]


class Conservative(Strict):
    """A share of an arm's rewards that may be lost at most, in sum; as `agents.conservative`."""

    arm: Label
    late: Annotated[int, Field(ge=0)]
    loss: Annotated[float, Field(gt=0, lt=1)] = 0.1
    share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95

    def of(self, arms: Sequence[Any], bounds: tuple[float, float] | None) -> dict[str, Any]:
        """Keywords, for arms and the range of rewards. Raises ValueError for an unknown arm, or rewards below 0."""
        if self.arm not in arms:
            raise ValueError(f"the arm of conservative must be one of {list(arms)}; got {self.arm!r}")
        if bounds is None or not 0 <= bounds[0] < bounds[1]:
            raise ValueError("conservative needs rewards from 0 on: declare rewards.low, of at least 0, and high")
        if self.loss + self.share >= 1:
            raise ValueError(f"loss and share of conservative must be below 1 together; got {self.loss + self.share:g}")
        own = self.model_dump(exclude={"arm"})
        return {"control": list(arms).index(self.arm), "largest_reward": bounds[1], **own}


class Reported(Strict):
    """What the report compares, declared before looking; as `OnlineAgent.report`."""

    segments: list[str] = []
    decisions: Count = 1
    within: Annotated[float, Field(ge=0, le=1e9)] = 0.0

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.decisions > 1) is not (self.within > 0):
            raise ValueError("decisions of a unit, more than one, and within, the seconds for them, go together")
        return self


def segments_in(levels: Mapping[str, Any]) -> list[str]:
    """Names of the levels of columns, as `seqdec.service.report.segments_of` has them."""
    pairs = [
        (column, level) for column, given in levels.items() for level in (given if isinstance(given, list) else [given])
    ]
    return [f"{column}={str(level).lower() if isinstance(level, bool) else level}" for column, level in pairs]


class Declaration(Strict):
    """A deployment: what is decided (arms, items or a box), by what (context), for what (rewards), and by whom."""

    arms: Annotated[list[Label], Field(min_length=1)] | None = None
    items: Features | None = None
    box: Box | None = None
    context: Features | None = None
    rewards: Rewards = Rewards()
    agent: str = "auto"
    settings: dict[str, bool | int | float | str] = {}
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    batch_size: Count = 16
    fsync: bool = False
    retention: Positive | None = None
    """seconds after which decisions are removed from the log"""
    apprentice: bool = False
    """to imitate the arm in use today, which comes with each request, until take_over"""
    control: ControlGroup | None = None
    """for whom no agent decides; requests then bring a unit, such as a user"""
    challenger: Player | None = None
    """another agent that learns beside the first, until take_over exchanges the two"""
    explore: Floor | None = None
    """of what the agents play"""
    shares: Shares | None = None
    """bounds of the probabilities of arms, of what the agents play"""
    conservative: Conservative | None = None
    """bound of what the agents may lose against an arm"""
    off: dict[str, dict[str, Level | list[Level]]] = {}
    """by arm, the columns and their levels, any of which takes the arm out of a decision"""
    report: Reported = Reported()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if sum(part is not None for part in (self.arms, self.items, self.box)) != 1:
            raise ValueError("declare either arms, or items, or a box")
        if self.arms is not None and len(set(self.arms)) < len(self.arms):
            raise ValueError(f"the names of arms must differ; got {self.arms}")
        if self.apprentice and self.arms is None:
            raise ValueError("an apprentice imitates one of arms; here actions are items or points of a box")
        if (self.retention or math.inf) < (self.rewards.window or 0):
            raise ValueError(f"retention must be at least rewards.window, {self.rewards.window:g} seconds")
        if self.control is not None:
            if self.arms is None:
                raise ValueError("a control group plays arms; here actions are items or points of a box")
            if self.control.arm not in (None, *self.arms):
                raise ValueError(f"the arm of the control group must be one of {self.arms}; got {self.control.arm!r}")
        if self.challenger is not None and (self.arms is None or self.apprentice):
            raise ValueError("a challenger plays arms, beside an agent that plays them: it is none of an apprentice")
        if (self.shares or self.off or self.report.segments) and self.arms is None:
            raise ValueError("shares, off and segments of the report are of arms; here actions are items or points")
        if self.shares is not None:
            self.shares.of(self.arms or ())
        if self.conservative is not None:
            if self.arms is None or self.apprentice or self.shares is not None:
                raise ValueError("conservative is for agents that play arms, without shares, and not for an apprentice")
            self.conservative.of(self.arms, self.rewards.bounds)
        if self.off or self.report.segments:
            encoder = self.context and self.context.made()
            if not encoder:
                raise ValueError(
                    "off, and segments of the report, are levels of columns of the context: declare columns"
                )
            check_segments(encoder, self.report.segments)
            self._check_off(encoder)
        if not is_reference(self.agent):
            agents.REGISTRY[self.agent]  # raises ValueError, with a suggestion
        return self

    def _check_off(self, encoder: Encoder) -> None:
        """Raises ValueError for an unknown arm, column or level."""
        _by_arm("off", dict.fromkeys(self.off, 0.0), self.arms or (), 0.0)
        for levels in self.off.values():
            for column, given in levels.items():
                known = segments_of(encoder, [column], np.zeros((0, len(encoder.names))))
                for segment in segments_in({column: given}):
                    if segment not in known:
                        raise ValueError(unknown("level of off", segment, known))

    def exchanged(self) -> Self:
        """With the challenger as the agent, and the agent as the challenger."""
        assert self.challenger is not None
        first = Player(agent=self.agent, settings=self.settings)
        return self.model_copy(update={**dict(self.challenger), "challenger": first})

    def check_trusted(self) -> None:
        """Raises ValueError where it names code outside the registries."""
        named = {"agent": self.agent, **{f"settings.{name}": value for name, value in self.settings.items()}}
        if self.challenger is not None:
            named |= {"challenger.agent": self.challenger.agent}
            named |= {f"challenger.settings.{name}": value for name, value in self.challenger.settings.items()}
        for key, value in named.items():
            check_registered(key, value)


class Key(Strict):
    """An API key: SHA-256 of one, or of two while they rotate; deployments: those it is for (None: all)."""

    sha256: Annotated[list[Digest], Field(min_length=1, max_length=2)]
    role: Role
    deployments: list[Name] | None = None


class Server(Strict):
    """Where the server listens, and its limits."""

    folder: str = "data"
    """of logs and snapshots; relative to the file"""
    store: Annotated[str, StringConstraints(pattern=r"^postgres(ql)?://")] | None = Field(default=None, repr=False)
    """a PostgreSQL database for the logs, of any number of servers; the folder has the rest: programs, the audit"""
    spool: bool = False
    """to decide by the last belief while that database is away, and to keep these decisions in the folder until then"""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, lt=2**16)] = 8000
    hosts: list[str] = []
    """names in the header Host; without any, all with keys, and loopback without"""
    wait: bool = False
    """to listen until all deployments are open, for those who cannot ask /ready"""
    body_bytes: Count = 2**20
    rows: Count = 1000
    """of one request"""
    rate: Positive | None = None
    """requests per second of a key, or of an address where there are no keys"""
    connections: Count = 1000
    patience: Seconds = 10.0
    """seconds in which a request must have arrived, and its answer been read"""
    idle: Seconds = 75.0
    """seconds that a connection is kept between requests"""
    waiting: Count = 4096
    """decisions, and as many reports, that may wait in a deployment"""
    grace: Seconds = 10.0
    """seconds for requests to end at SIGTERM, and as many to write snapshots"""

    @model_validator(mode="after")
    def _spools_for_store(self) -> Self:
        if self.spool and self.store is None:
            raise ValueError("spool = true requires a store, which may be unavailable: leave it out")
        return self

    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name
            return False


class Settings(Strict):
    """A file of settings."""

    server: Server = Server()
    keys: dict[Name, Key] = {}
    deployments: dict[Name, Declaration] = {}

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if not self.keys and not self.server.is_loopback():
            raise ValueError(
                f"server.host = {self.server.host!r} is open to other machines: declare keys (seqdec serve --new-key), "
                "or listen on 127.0.0.1"
            )
        return self


class Found(NamedTuple):
    """Settings, and the files that they name."""

    settings: Settings
    folder: Path
    """of the server's data"""
    logs: Mapping[str, Path]
    """to learn first, by deployment"""


def read(path: Path, port: int | None = None) -> Found:
    """The settings in a TOML file, perhaps with another port. Raises ValueError, naming the key, FileNotFoundError."""
    try:
        table = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    if port is not None:
        table["server"] = {**table.get("server", {}), "port": port}
    logs: dict[str, Path] = {}
    declared = table.get("deployments")
    for name, one in declared.items() if isinstance(declared, dict) else ():
        if isinstance(one, dict):
            if isinstance(one.get("log"), str):
                logs[name] = _beside(path, f"deployments.{name}.log", one.pop("log"))
            for key in ("context", "items"):
                part = one.get(key)
                if isinstance(part, dict) and isinstance(part.get("encoder"), str):
                    file = _beside(path, f"deployments.{name}.{key}.encoder", part["encoder"])
                    try:
                        part["encoder"] = json.loads(read_text(file))
                    except (OSError, ValueError) as error:
                        raise ValueError(f"{path}: deployments.{name}.{key}.encoder: {error}") from error
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        raise ValueError(f"{path}: {said(error)}") from None  # which shows values
    return Found(settings, _beside(path, "server.folder", settings.server.folder), logs)


def _beside(file: Path, called: str, given: str) -> Path:
    """A path relative to a file. Raises ValueError for a URL."""
    try:
        located(given)
    except ValueError as error:
        raise ValueError(f"{file}: {called}: {error}") from None
    return file.parent / given


def said(error: ValidationError) -> str:
    """The first of the faults, with its place, and its value where that cannot have a password."""
    first, *others = error.errors(include_url=False, include_context=False)
    place = ".".join("..." if _SECRET.search(str(part)) else str(part) for part in _named(first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        own = str(first["loc"][-1])
        close = difflib.get_close_matches(own, [key for key in _keys(Strict) if key != own], n=1)
        message = f"unknown key; did you mean {close[0]!r}?" if close else "unknown key"
    elif first["type"] != "string_pattern_mismatch" and _SECRET.search(message):
        message = re.sub("['\"].*", "...", message, flags=re.DOTALL)
    if first["type"] == "extra_forbidden" or isinstance(first["input"], dict | list | Strict):
        given = ""
    elif _SECRET.search(str(first["input"])):
        given = " (its value is not shown, as it may have a password)"
    else:
        given = f"; got {first['input']!r:.80}"
    more = f" (and {len(others)} more)" if others else ""
    return f"{place}: {message}{given}{more}" if place else f"{message}{more}"


def _keys(model: type[BaseModel]) -> set[str]:
    """Of all models that derive from one."""
    return set(model.model_fields).union(*map(_keys, model.__subclasses__()))


def _named(place: Sequence[Any]) -> list[Any]:
    """The keys of a place, without the kinds that pydantic tried."""
    return [
        part
        for i, part in enumerate(place)
        if not ("[" in str(part) or part in ("bool", "int", "float", "str") or (i > 1 and place[i - 2] == "columns"))
    ]
