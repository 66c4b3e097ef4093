"""Problems of a service, detected in its table of decisions (`seqdec.service.read_history`).

The latest w decisions, for several w, are compared with those before; a share of rows counts as risen if the lower end
of Wilson's interval (z = 4) is above 1% and twice the share before:

    (p + z^2 / 2w - z sqrt(p (1 - p) / w + z^2 / 4w^2)) / (1 + z^2 / w)  >  max(0.01, 2 p_before)

Drift is the Kolmogorov-Smirnov distance between the first and the last part of the log. In both, n rows with the lag-1
autocorrelation r count as n (1 - r) / (1 + r) (Wilks, "Statistical Methods in the Atmospheric Sciences").
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special, stats

from seqdec.features import Encoder
from seqdec.features.kinds import Categorical, Date, Days, Numeric, Ordered, Quantiles, Vector
from seqdec.service.logs import LOG
from seqdec.service.store import COLLECTED, DEFAULT, HISTORY, INACTIVE, REPORTED, WITHDRAWN

_SHARE = 4
"""The first and the last 1 / `_SHARE` of the log are compared."""
_LEAST = 200
"""Decisions below which nothing is diagnosed."""
_WIDTHS = (200, 1_000)
_Z = 4.0
_RARE, _MUCH = 0.01, 0.2
"""Shares of unknown levels and clipped values: never worth an alarm; always, whatever was before."""
_DISTANCE, _CHANCE = 0.15, 1e-5
"""Of a drift worth an alarm."""
_LOST = 0.05
"""An abandoned arm has this share of its decisions before."""
_SILENCE, _REPORTS = 50, 30
"""Least decisions without a report, and reports of a delay, worth an alarm."""
_OFF = 0.2
"""Least error of expected rewards worth an alarm, in standard deviations of a reward."""
_LAG = 10.0
"""Seconds that a belief may lag: a learner who has gone is replaced in less."""
_DAY = 86_400.0
_NAMED = 5


class Alarm(NamedTuple):
    """Something that an operator should look at."""

    kind: str
    """lag, reports, choices, levels, missing, clipped, drift, delays or calibration"""
    subject: str
    """column or arm; "" for the service"""
    observed: str
    cause: str
    """likely"""
    action: str
    """of the operator"""

    def __str__(self) -> str:
        return f"{self.observed}. Likely cause: {self.cause}. Action: {self.action}."


class Feature(NamedTuple):
    """What an encoder says of a feature."""

    column: str
    kind: str
    """levels (1 for an unknown one), missing (1), calendar, clipped (at its ends) or value"""
    low: float = 0.0
    high: float = 1.0
    is_tied: bool = False
    """whether many values may be at an end in a healthy log"""


def played(history: Any) -> Any:
    """Without what was withdrawn."""
    return history[history["source"].ne(WITHDRAWN).fillna(True)].reset_index(drop=True)


def contexts_of(history: pd.DataFrame) -> list[str]:
    """Names of the columns that hold the contexts."""
    return list(history.columns[list(history.columns).index("source") + 1 :])


def features_of(history: pd.DataFrame) -> dict[str, Feature]:
    """By column of the history, as far as the encoder has a JSON form."""
    described = history.attrs.get(LOG, {}).get("encoder")
    found = {}
    for part, text in (described if isinstance(described, Mapping) else {"": described}).items():
        for column, kind in Encoder.from_json(text).kinds.items() if isinstance(text, str) else ():
            names = [f"{part} {name}".lstrip() for name in (*kind.features(column), f"{column} missing")]
            *values, missing = [f"context {name}" if f"context {name}" in history else name for name in names]
            feature = Feature(f"{part} {column}".lstrip(), "value")
            found[missing] = feature._replace(kind="missing")
            match kind:
                case Date() | Days():
                    feature = feature._replace(kind="calendar")
                case Numeric() | Vector():
                    feature = feature._replace(kind="clipped", low=kind.bounds[0], high=kind.bounds[1])
                case Quantiles() if len(kind.scores) > 1:
                    feature = Feature(feature.column, "clipped", kind.scores[0], kind.scores[-1], is_tied=True)
            found |= dict.fromkeys(values, feature)
            if isinstance(kind, Categorical | Ordered):
                found[values[-1]] = feature._replace(kind="levels")
    return found


def alarms(history: pd.DataFrame) -> tuple[Alarm, ...]:
    """Alarms for an operator in a table of `read_history`, the most urgent first; none in a short log."""
    own = played(history)
    own = own[own["source"].ne(HISTORY).fillna(True)].reset_index(drop=True)
    if len(own) < _LEAST:
        return ()
    whole = own[own["token"].notna()].reset_index(drop=True)  # without erased contexts
    encoded = tuple(encodings(whole))
    explained = {alarm.subject for alarm in encoded}
    return (*reports(own), *choices(own), *encoded, *drifted(whole, explained), *delays(own))


def reports(history: pd.DataFrame) -> Iterator[Alarm]:
    """Whether rewards have stopped coming, of all decisions or of one arm.

    Silence is measured in decisions: three times the longest stretch without a report before, and improbable.
    """
    log: Mapping[str, Any] = history.attrs.get(LOG, {})
    source: Any = history["source"]
    times, reported = _seconds(history["time"]), source.isin([REPORTED, COLLECTED]).to_numpy()
    waiting = log.get("last report")
    end = times[-1] - (log.get("window") or 0.0)  # combined reports appear when their window is over
    rows = int(np.searchsorted(times, end if waiting is None else times[-1], "right"))
    arrivals = np.sort([*_seconds(history["reward_time"])[reported], *([] if waiting is None else [waiting])])
    places = np.searchsorted(times, arrivals, "right")
    expected = "the client does not send reports any more, or with other tokens"
    action = "look for errors where `learn` is called, and at its results `unknown` and `expired`"
    if not len(arrivals):
        least = 1_000 if source.eq(DEFAULT).any() else 2 * _LEAST
        if rows >= least:
            yield Alarm("reports", "", f"no reward was reported for any of {rows:,} decisions", expected, action)
        return
    silent, longest = rows - int(places[-1]), int(np.diff(places, prepend=0).max())
    if silent >= max(_SILENCE, 3 * longest) and silent * np.log1p(-min(len(arrivals) / len(times), 0.999)) < -9:
        last = pd.Timestamp(int(arrivals[-1] * 1e9), tz="UTC")
        found = (
            f"no report for the last {silent:,} decisions, since {last:%Y-%m-%d %H:%M:%S} UTC; before, never for more "
        )
        yield Alarm("reports", "", f"{found}than {longest:,}", expected, action)
        return
    if not reported.any():
        return
    delay = (_seconds(history["reward_time"]) - times)[reported]
    old = (times <= end - np.quantile(delay, 0.95)) & source.ne(INACTIVE).fillna(True).to_numpy()
    if (fall := _fallen(reported[old], 0.5)) is not None:
        found = f"reports came for {fall[1]:.1%} of decisions, and for {fall[0]:.1%} lately"
        yield Alarm("reports", "", found, "some clients do not report any more, or there is less to report", action)
        return
    for arm in history["action"].unique() if "action" in history else ():
        at = old & history["action"].eq(arm).to_numpy()
        if at.sum() >= _LEAST and (fall := _fallen(reported[at], 0.4)) is not None:
            found = f"reports of {arm} came for {fall[1]:.1%} of its decisions, and for {fall[0]:.1%} lately"
            yield Alarm("reports", str(arm), found, "what this arm shows reports no rewards any more", action)


def choices(history: pd.DataFrame) -> Iterator[Alarm]:
    """Whether the policy has collapsed: all arms but one are abandoned at once, and the rewards have not risen.

    An agent that learns abandons arms gradually: over equal stretches the share of the others does not fall from 20% to
    a twentieth of it.
    """
    arms = history.attrs.get(LOG, {}).get("arms")
    if "action" not in history or len(arms if arms is not None else history["action"].unique()) < 2:
        return
    action, reward = history["action"].to_numpy(), history["reward"].to_numpy(float)
    cause = "the belief has collapsed, as after wrong rewards, or the policy does not explore"
    remedy = "compare the rewards of the arms, look at `explain`, and at what was deployed then"
    for width in (*_WIDTHS, len(action) // _SHARE):
        if 3 * width > len(action):  # at first an agent learns
            continue
        recent, before = slice(len(action) - width, None), slice(len(action) - 2 * width, len(action) - width)
        arm = history["action"].iloc[recent].value_counts().index[0]
        others, others_before = ((action[part] != arm).mean() for part in (recent, before))
        is_sudden = others_before >= max(_MUCH, 30 / width) and others <= _LOST * others_before
        if is_sudden and not _rose(reward[before], reward[recent]):
            now, then = (
                f"{1 - others:.1%} of the last {width:,} decisions",
                f"{1 - others_before:.1%} of as many before",
            )
            yield Alarm(
                "choices", str(arm), f"{arm} has {now}, and had {then}, while rewards did not rise", cause, remedy
            )
            return
    if len(set(action.tolist())) == 1 and history["number"].iloc[0] == 1:
        found = f"all {len(action):,} decisions were for {action[0]}, none for any other arm"
        yield Alarm("choices", str(action[0]), found, "the policy does not explore", remedy)


def encodings(history: pd.DataFrame) -> Iterator[Alarm]:
    """Unknown levels, missing and clipped values, by column."""
    if len(history) < _LEAST:
        return
    known, worst = features_of(history), {}
    for name in contexts_of(history):
        x = history[name].to_numpy(float)
        feature = known.get(name)
        if feature is None:
            if known or len(np.unique(x[: len(x) // 2])) <= _WIDTHS[0] // 10:
                continue
            feature = Feature(name, "clipped", x.min(), x.max(), is_tied=True)  # bounds of a Box, if anything
        if feature.kind in ("calendar", "value"):
            continue
        ends = (x <= feature.low + 1e-5, x >= feature.high - 1e-5)
        for flag in ends if feature.kind == "clipped" else ends[1:]:
            if (share := _risen(flag, always=not feature.is_tied)) is not None:
                key = feature.kind, feature.column
                worst[key] = max(worst.get(key, (0.0, 0.0)), share)
    for (kind, column), (share, before) in worst.items():
        found = f"{_SAID[kind].format(column)} in {share:.1%} of the latest decisions, {before:.1%} before"
        yield Alarm(kind, column, found, *_CAUSES[kind])


_SAID = {
    "levels": "{} has a level that the encoder does not know",
    "missing": "{} is missing",
    "clipped": "{} is at its least or largest possible value",
}
_CAUSES = {
    "levels": (
        "new levels, or another spelling (the log does not hold which)",
        "look at what clients send; fit an encoder with the new levels, and a new service to the log",
    ),
    "missing": ("a client does not send the column, or under another name", "look at what clients send"),
    "clipped": (
        "another unit, such as cents for euros, or values beyond those that the encoder was fitted to",
        "look at what clients send; if the values are right, fit the encoder anew",
    ),
}


def drifted(history: pd.DataFrame, explained: Collection[str] = ()) -> Iterator[Alarm]:
    """Columns whose distribution has changed, but for those that are `explained`."""
    if len(history) < _LEAST:
        return
    found: Any = drift(history)
    found = found[found["beyond chance"] & (found["chance"] < _CHANCE) & (found["distance"] >= _DISTANCE)]
    known = {}
    features = features_of(history)
    for name, row in found.iterrows():  # the largest distance first
        column = features[name].column if name in features else str(name)
        if column not in explained:
            known.setdefault(column, row)
    if not known:
        return
    shown = [
        f"{name} (from {row['first mean']:.3g} to {row['last mean']:.3g}, distance {row['distance']:.2f})"
        for name, row in list(known.items())[:_NAMED]
    ]
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    yield Alarm(
        "drift",
        ", ".join(list(known)[:_NAMED]),
        f"the encoded contexts have changed between the first and the last part of the log: {', '.join(shown)}{more}",
        "other visitors than before, or another meaning or unit of the column",
        "see whether the change is real; if it is, an agent that forgets follows it, as with `forgetting`",
    )


def delays(history: pd.DataFrame) -> Iterator[Alarm]:
    """Whether reports come much later than before, by the time of the report.

    Reports that arrived before a decision could be that old are left out.
    """
    reported = history["source"].isin([REPORTED, COLLECTED]).to_numpy()
    times, arrivals = _seconds(history["time"]), _seconds(history["reward_time"])
    order = np.argsort(arrivals[reported], kind="stable")
    delay, arrived = (arrivals - times)[reported][order], arrivals[reported][order]
    for width in (*_WIDTHS, len(delay) // _SHARE):
        recent = delay[len(delay) - width :]
        if width < _REPORTS or 2 * width > len(delay):
            continue
        before = delay[:-width][arrived[:-width] >= times[0] + np.quantile(recent, 0.99)]
        middle, usual = np.median(recent), np.median(before) if len(before) else np.inf
        if len(before) < _REPORTS or middle < 3 * usual:
            continue
        if stats.ks_2samp(before, recent).pvalue < 1e-6:  # pyright: ignore[reportAttributeAccessIssue]
            found = (
                f"half of the latest {width:,} reports came after more than {spoken(middle)}, before {spoken(usual)}"
            )
            window = history.attrs.get(LOG, {}).get("window")
            late = f" (decisions take rewards for {spoken(window)})" if window else ""
            cause = "reports are sent in batches, or wait in a queue"
            yield Alarm("delays", "", found, cause, f"look at the way of the reports; what is late is lost{late}")
            return


def drift(history: pd.DataFrame) -> pd.DataFrame:
    """Drift by column of the contexts, the largest distance first, those that follow the calendar last.

    Columns: first mean, last mean, shift (in standard deviations of the first part), distance (Kolmogorov-Smirnov),
    chance (of as large a distance without drift), beyond chance (at 1% over all columns together), calendar (a date, or
    a function of the time; never beyond chance).
    """
    known, names = features_of(history), contexts_of(history)
    first, last = parts(history)
    seconds, rows = _seconds(history["time"]), {}
    for name in names:
        before, after = (part[name].dropna().to_numpy(float) for part in (first, last))  # without erased contexts
        if not len(before) or not len(after):
            continue
        distance = _distance(before, after)
        effective = 1 / (1 / _independent(before) + 1 / _independent(after))
        chance = special.kolmogorov(distance * np.sqrt(effective))  # of as large a distance without drift
        calendar = name in known and known[name].kind == "calendar"
        calendar = calendar or _follows(history[name].to_numpy(float), seconds)
        std = before.std() or after.std()
        rows[name] = {
            "first mean": before.mean(),
            "last mean": after.mean(),
            "shift": (after.mean() - before.mean()) / std if std else 0.0,
            "distance": distance,
            "chance": chance,
            "beyond chance": bool(chance < 0.01 / len(names)) and not calendar,
            "calendar": calendar,
        }
    columns = ["first mean", "last mean", "shift", "distance", "chance", "beyond chance", "calendar"]
    table: Any = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    order = np.lexsort((-table["distance"].to_numpy(float), table["calendar"].to_numpy(bool)))
    return table.iloc[order].rename_axis("number")


def parts(history: Any) -> tuple[Any, Any]:
    """The first and the last quarter; of four days or more whole days, of four weeks or more whole weeks."""
    seconds = _seconds(history["time"])
    days = (seconds[-1] - seconds[0]) / _DAY if len(seconds) else 0.0
    unit = 7 if days >= 7 * _SHARE else 1
    if days < _SHARE:
        share = max(1, len(history) // _SHARE)
        return history.iloc[:share], history.iloc[-share:]
    length = days // (_SHARE * unit) * unit * _DAY
    return history[seconds < seconds[0] + length], history[seconds > seconds[-1] - length]


def entropy(actions: pd.Series) -> float:
    """Of the shares of actions, in nats: 0 if one has all, log(k) of k alike."""
    return float(stats.entropy(actions.value_counts(sort=False).to_numpy(float)))


def spoken(seconds: float) -> str:
    """A duration with its unit."""
    for size, unit in ((_DAY, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1_000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def lagging(seconds: float) -> Iterator[Alarm]:
    """Whether the belief that decides lacks old rewards, by `OnlineAgent.lag`."""
    if seconds > _LAG:
        yield Alarm(
            "lag",
            "",
            f"this process decides by a belief that lacks rewards from {spoken(seconds)} ago on",
            "no process learns, this one cannot read the new beliefs, or rewards come faster than one process learns",
            "look for warnings in the logs of the servers; if the lag grows with the rewards, choose an agent that "
            "learns faster, such as linear, or report fewer rewards",
        )


def uncalibrated(table: Any) -> Iterator[Alarm]:
    """Whether rewards differ from the belief's expectations, by a table of `OnlineAgent.calibration`."""
    expected, observed, error = (table[name].to_numpy(float) for name in ("expected", "observed", "std_error"))
    gap, count = observed - expected, table["decisions"].to_numpy(float)
    off = np.abs(gap) > np.maximum(_Z * error, _OFF * np.sqrt(count) * error)
    if off.any() and count.sum() >= _LEAST:
        worst = int(np.where(off, np.abs(gap), 0).argmax())
        yield Alarm(
            "calibration",
            "",
            f"where the agent expects rewards of {expected[worst]:.3g}, they are {observed[worst]:.3g} on average",
            "the rewards have changed faster than the agent forgets, or its model cannot follow them",
            "look at the arms' rewards over time (seqdec monitor); let a challenger, such as auto, learn beside it",
        )


def _risen(flag: np.ndarray, *, always: bool) -> tuple[float, float] | None:
    """Share of the latest rows, and before, if it has risen, or if it is large and `always` counts."""
    for width in (*_WIDTHS, len(flag) // _SHARE, len(flag) // 2):
        if not 0 < width < len(flag):
            continue
        share, before = float(flag[-width:].mean()), float(flag[:-width].mean())
        if _lower(share, _independent(flag[-width:] * 1.0)) > max(_RARE, 2 * before) or (
            always and min(share, before) > _MUCH
        ):
            return share, before
    return None


def _fallen(flag: np.ndarray, most: float) -> tuple[float, float] | None:
    """Share of the latest rows, and before, if it is below `most` of that, beyond chance."""
    for width in (_WIDTHS[0] // 2, _WIDTHS[0], len(flag) // _SHARE):
        if 2 * width > len(flag) or width < _SILENCE:
            continue
        share, before = float(flag[-width:].mean()), float(flag[:-width].mean())
        deviation = np.sqrt(before * (1 - before) / width)
        if before * width >= _SILENCE / 2 and share < most * before and before - share > _Z * deviation:
            return share, before
    return None


def _rose(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether the mean of the known rewards rose beyond chance."""
    before, after = (part[np.isfinite(part)] for part in (before, after))
    if min(len(before), len(after)) < 2:
        return False
    error = np.sqrt(before.var() / len(before) + after.var() / len(after))
    return bool(after.mean() - before.mean() > 2 * error)


def _lower(share: float, rows: float) -> float:
    spread = np.sqrt(share * (1 - share) / rows + _Z**2 / (4 * rows**2))
    return (share + _Z**2 / (2 * rows) - _Z * spread) / (1 + _Z**2 / rows)


def _independent(values: np.ndarray) -> float:
    """Number of independent rows that are worth the values."""
    centered = values - values.mean()
    total = float(centered @ centered)
    r = float(centered[1:] @ centered[:-1]) / total if total else 0.0
    return len(values) * (1 - min(max(r, 0.0), 0.99)) / (1 + max(r, 0.0))


def _follows(values: np.ndarray, seconds: np.ndarray) -> bool:
    """Whether numbers are a function of the time: they grow with it, or the hour or the weekday determines them."""
    known = np.isfinite(values)
    values, seconds = values[known], seconds[known]
    if len(values) < _LEAST or values.min() == values.max():
        return False
    if (np.diff(values) >= 0).all() or (np.diff(values) <= 0).all():
        return len(np.unique(values)) > len(values) // 2
    days = (seconds[-1] - seconds[0]) / _DAY
    for slot in ((seconds // 3_600) % 24, (seconds // _DAY) % 7)[: 0 if days < 2 else 1 if days < 14 else 2]:
        means = pd.Series(values).groupby(slot.astype(int)).transform("mean").to_numpy()
        if ((values - means) ** 2).mean() < 0.01 * values.var():
            return True
    return False


def _distance(before: np.ndarray, after: np.ndarray) -> float:
    places = np.concatenate([before, after])
    below = [np.searchsorted(np.sort(values), places, side="right") / len(values) for values in (before, after)]
    return float(np.abs(below[0] - below[1]).max())


def _seconds(times: Any) -> np.ndarray:
    """Since 1970, NaN where unknown."""
    return (times - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(float)
