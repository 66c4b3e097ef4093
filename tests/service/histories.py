"""Histories of simulated services, as `seqdec.service.read_history` returns them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from seqdec.features import Categorical, Date, Encoder, Numeric, Quantiles
from seqdec.service.logs import LOG

ENCODER = Encoder(
    {
        "when": Date(yearly=True),
        "age": Numeric(40, 12),
        "city": Categorical(("Oslo", "Rome", "Turku")),
        "spent": Quantiles((0.0, 5.0, 20.0, 100.0), (-1.0, 0.0, 1.0, 2.0)),
    }
)
ARMS = ("banner", "<b>video</b>", "none", 7)
START: Any = pd.Timestamp("2026-09-01", tz="UTC")


def services(count: int, rows: int, seed: int, days: float) -> dict[str, np.ndarray]:
    """Healthy services: Thompson sampling on contexts whose traffic and mix follow the hour; clicks, reported late.

    They differ in how much arms and contexts matter, and in delays. Arguments (count, rows) of `history`.
    """
    rng = np.random.default_rng(seed)
    hours = np.sort(rng.uniform(0, 24 * days, (count, 3 * rows)), axis=1)
    busy = rng.random(hours.shape) < 0.55 + 0.45 * np.sin(2 * np.pi * hours / 24)  # more by day
    times = np.sort(np.where(busy, hours, np.inf), axis=1)[:, :rows]
    assert np.isfinite(times).all()
    evening = times % 24 > 18
    ages = rng.normal(np.where(evening, 34, 40), 10)
    cities = np.where(rng.random(times.shape) < np.where(evening, 0.4, 0.5), 1, rng.integers(0, 3, times.shape))
    spent = np.where(rng.random(times.shape) < 0.4, 0.0, rng.lognormal(2, 1, times.shape))
    x = np.stack([np.ones_like(ages), (ages - 40) / 12, cities == 1, np.log1p(spent) - 1], axis=-1)
    spread = np.where(np.arange(count) % 2, 0.03, 0.15)[:, None, None]  # of the arms: hard and easy ones
    theta = rng.normal(0, spread, (count, 4, 4)) * [1, 0.5, 0.5, 0.5]
    theta[..., 0] += 0.25
    actions, chances, clicks = _played(rng, x, theta, lag=rng.integers(1, 200, count))
    delays = rng.exponential(rng.choice([0.01, 0.5, 6.0], count)[:, None], times.shape)
    parts = {"hours": times, "actions": actions, "chances": chances, "clicks": clicks, "delays": delays}
    return {**parts, "ages": ages, "cities": cities, "spent": spent}


def histories(parts: Mapping[str, np.ndarray]) -> list[pd.DataFrame]:
    """Of each service; in one of three a missing click becomes the default."""
    count = len(parts["hours"])
    rows = [{name: part[one] for name, part in parts.items()} for one in range(count)]
    return [history(**row, window=None if one % 3 else 24.0) for one, row in enumerate(rows)]


def _played(rng: np.random.Generator, x: np.ndarray, theta: np.ndarray, lag: Any) -> tuple[np.ndarray, ...]:
    """Actions, propensities and clicks (count, rows) of sampling from linear posteriors, `lag` rows late."""
    count, rows, size = x.shape
    arms, ones = theta.shape[1], np.arange(count)
    precision = np.tile(4 * np.eye(size), (count, arms, 1, 1))
    total = np.zeros((count, arms, size))
    actions, chances, clicks = np.zeros((count, rows), int), np.zeros((count, rows)), np.zeros((count, rows))
    mean = root = np.zeros(())
    for t in range(rows):
        if t % 25 == 0:
            covariance = np.linalg.inv(precision)
            mean = np.einsum("nakl,nal->nak", covariance, total)
            root = np.linalg.cholesky(0.2 * covariance)
        draws = mean[:, :, None] + np.einsum("nakl,nasl->nask", root, rng.normal(size=(count, arms, 10, size)))
        best = np.einsum("nask,nk->nsa", draws, x[:, t]).argmax(-1)
        law = 0.02 / arms + 0.98 * (best[:, :, None] == np.arange(arms)).mean(1)
        actions[:, t] = (rng.random((count, 1)) > law.cumsum(1)[:, :-1]).sum(1)
        chances[:, t] = law[ones, actions[:, t]]
        clicks[:, t] = rng.random(count) < np.clip(np.einsum("nk,nk->n", theta[ones, actions[:, t]], x[:, t]), 0, 1)
        seen = t - lag
        known, at = ones[seen >= 0], np.maximum(seen, 0)[seen >= 0]
        row = x[known, at]
        precision[known, actions[known, at]] += row[:, :, None] * row[:, None]
        total[known, actions[known, at]] += row * clicks[known, at, None]
    return actions, chances, clicks


def history(
    hours: Any, actions: Any, chances: Any, clicks: Any, delays: Any, ages: Any, cities: Any, spent: Any, *,
    window: float | None = None,
) -> pd.DataFrame:  # fmt: skip
    """A table like that of `read_history`. Without a window every reward is reported, with one (hours) only clicks.

    `cities` above 2 are unknown to the encoder.
    """
    rows = len(hours)
    times = START + pd.to_timedelta(hours, unit="h")
    names = np.array([*ENCODER.kinds["city"].levels, "Bergen"])[cities]  # pyright: ignore[reportAttributeAccessIssue]
    given = {"when": times, "age": ages, "city": names, "spent": spent}
    encoded = ENCODER.transform(pd.DataFrame(given))
    end, source = hours[-1], np.full(rows, None, object)
    arrived, comes = hours + delays, hours + delays <= end
    if window is not None:
        comes &= (clicks > 0) & (delays < window)
    last = arrived[comes].max()
    if window is not None:
        over = hours + window <= end
        source[over & ~comes], source[over & comes] = "default", "collected"
        arrived = np.where(comes, arrived, hours + window)
    else:
        source[comes] = "reported"
    known = source != None  # noqa: E711
    reward, arrived = np.where(known, clicks * comes, np.nan), np.where(known, arrived, np.nan)
    table = pd.DataFrame(
        {
            "number": np.arange(1, rows + 1),
            "time": times,
            "token": pd.array([f"{number}-00" for number in range(rows)], "string"),
            "key": pd.array([None] * rows, "string"),
            "action": pd.Series([ARMS[action] for action in actions], dtype=object),
            "propensity": chances,
            "reward": reward,
            "reward_time": START + pd.to_timedelta(arrived, unit="h"),
            "source": pd.array(source, "string"),
            **dict(zip(ENCODER.names, encoded.T, strict=True)),
        }
    )
    table.attrs[LOG] = {"encoder": ENCODER.to_json(), "window": None, "arms": list(ARMS), "last report": None}
    if window is not None:
        table.attrs[LOG] |= {"window": 3_600 * window, "last report": START.timestamp() + 3_600 * last}
    return table
