"""The pictures of docs/gallery.md: a panel for each registered agent, policy, surrogate and optimizer, a row for each
estimator.

    python benchmarks/gallery.py [--families agents policies] [--out docs]

agents          belief about an arm's expected reward after 100 of its rewards
policies        probability of each of three arms while the belief about the third changes
surrogates      belief about a function of one number at eight known points
estimators      estimates and 95% intervals of a policy on one log, as decisions, slates and sessions, and of a price
optimizers      loss of a network of two matrices, at the best of seven learning rates

Each picture holds the names that it shows, which tests compare with the registries.
"""

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from concepts import BLUE, DARK, GREEN, ORANGE, WIDE
from gymnasium import spaces
from harness import command
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, PngImagePlugin

from seqdec import agents, figures, linalg, ope, optim, policies
from seqdec.bo import BayesianOptimizer
from seqdec.bo.surrogates.contract import REGISTRY as SURROGATES
from seqdec.core import Posterior, Predictive, Spaces
from seqdec.features import SparseBox
from seqdec.policies.common import played

REACH, CELLS = 3.0, 12
"""Contexts lie in [-REACH, REACH]; `hashed` sees which of as many cells they lie in."""
KINDS = {"regression": BLUE, "process": "#CC79A7", "filter": GREEN, "head": ORANGE, "network": "#E69F00"}
ITEMS, SLOTS, VISITS = 6, 3, 400
WORLD = np.random.default_rng(5).normal(size=(2, ITEMS // 2)).repeat(2, axis=1)
"""Slopes and levels of the items; two neighbors are alike."""
RATES = 10 ** np.linspace(-3, 0, 7, dtype=np.float32)
STEPS, BATCH = 150, 32


def grid(names: Iterable[str], columns: int) -> tuple[Figure, dict[str, Axes]]:
    """A panel with its title for each name."""
    names = list(names)
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(10.5, 0.8 + 1.75 * rows), dpi=95, layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True).ravel()
    for axis in panels[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(panels, names, strict=False):
        axis.set_title(name, fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    return figure, dict(zip(names, panels, strict=False))


def smooth(x: Any) -> Any:
    """A function of one number."""
    return np.sin(2 * x) + 0.3 * x


def band(axis: Axes, x: Any, mean: Any, low: Any, high: Any, color: str) -> None:
    """A mean and its interval, where known."""
    axis.fill_between(x, low, high, color=color, alpha=0.25, lw=0)
    axis.plot(x, mean, color=color, lw=1.6)
    axis.plot(x, smooth(x), color=DARK, ls="--", lw=0.9)


def site(name: str) -> tuple[Spaces, Any]:
    """Spaces that an agent takes, and contexts of them from numbers (n,)."""
    known = agents.capabilities(name).spaces
    if "contexts" in known:
        return Spaces(spaces.Box(-REACH, REACH, (1,)), spaces.Discrete(2)), lambda x: x[:, None]
    if "sparse" in known:
        edges = np.linspace(-REACH, REACH, CELLS + 1)[1:-1]
        return Spaces(SparseBox(CELLS, 1), spaces.Discrete(2)), lambda x: np.stack(
            [np.searchsorted(edges, x), np.ones(len(x))], axis=1, dtype=np.float32
        )[:, None]
    items = spaces.Dict(video=spaces.Box(0, 1, (2,), np.int32))
    return Spaces(items, spaces.Discrete(2)), lambda x: {"video": np.tile(np.arange(2), (len(x), 1))}


def draw_agents() -> Figure:
    """Contexts have a gap; both arms are played alike, and the second one's rewards are the opposite."""
    rng, x = np.random.default_rng(0), np.linspace(-REACH, REACH, 121, dtype=np.float32)
    at = np.where(rng.random(200) < 0.5, rng.uniform(-2.3, -0.7, 200), rng.uniform(0.9, 2.3, 200)).astype(np.float32)
    arm = rng.integers(2, size=200)
    reward = (np.where(arm == 0, 1, -1) * smooth(at) + 0.2 * rng.normal(size=200)).astype(np.float32)
    figure, panels = grid(sorted(agents.REGISTRY.own()), 5)
    for name, axis in panels.items():
        where, contexts = site(name)
        agent = agents.make(name, where)

        def learned(key: Any, rows: Any, asked: Any, agent: Any = agent) -> Any:
            state, _ = jax.lax.scan(lambda state, row: (agent.update(state, *row)[0], None), agent.init(key), rows)
            return jax.lax.map(lambda one: agent.assess(key, state, one), asked)

        found = jax.jit(learned)(jax.random.key(0), (contexts(at), arm, reward), contexts(x))
        mean, half = found.mean[:, 0], WIDE * np.sqrt(found.variance[:, 0])
        band(axis, x, mean, mean - half, mean + half, KINDS.get(agents.capabilities(name).kind, "0.5"))
        axis.plot(at[arm == 0], reward[arm == 0], ".", color=DARK, ms=2)
        axis.set_ylim(-2.5, 2.5)
    figure.supxlabel("context", fontsize=10)
    figure.supylabel("reward of one arm", fontsize=10)
    labels = {**KINDS, "baseline": "0.5"}
    handles = [axis.plot([], [], color=color, lw=3)[0] for color in labels.values()]
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def draw_policies() -> Figure:
    """The belief about the third arm is the most uncertain one."""
    means = jnp.linspace(-0.5, 1.5, 101)
    cov, noise = jnp.diag(jnp.array([0.05, 0.15, 0.45]) ** 2), 0.09 * jnp.eye(3)

    def believed(mean: Any) -> Posterior:
        at = Predictive(jnp.array([0.5, 0.4, 0.0]).at[2].set(mean), cov, noise)

        def draw(key: Any) -> Any:
            drawn = at.mean + jax.random.normal(key, (3,)) @ linalg.psd_root(cov)
            return lambda candidates: drawn

        return Posterior(lambda candidates: at.mean, lambda candidates: at, draw)

    figure, panels = grid(sorted(policies.REGISTRY.own()), 4)
    for name, axis in panels.items():
        options = {"propensity_samples": 4000} if "propensity_samples" in policies.REGISTRY.parameters(name) else {}
        policy = policies.make(name, **options)

        def law_at(mean: Any, policy: Any = policy) -> Any:
            return played(policy, jax.random.key(0), believed(mean), None, None)[1]

        axis.stackplot(means, np.asarray(jax.lax.map(law_at, means)).T, colors=(BLUE, GREEN, ORANGE), lw=0)
        axis.set(xlim=(-0.5, 1.5), ylim=(0, 1))
    figure.supxlabel("mean of the third arm", fontsize=10)
    figure.supylabel("probability", fontsize=10)
    labels = ("arm 1: 0.5 ± 0.05", "arm 2: 0.4 ± 0.15", "arm 3: mean ± 0.45")
    figure.legend(panels["ucb"].collections, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw_surrogates() -> Figure:
    """Values without noise."""
    x, known = np.linspace(-REACH, REACH, 121), np.array([-2.7, -2.2, -1.8, -1.1, -0.8, 1.2, 1.5, 2.6])
    figure, panels = grid(sorted(SURROGATES.own()), 5)
    for name, axis in panels.items():
        search = BayesianOptimizer([(-REACH, REACH)], seed=0, surrogate=name)
        for one in known:
            search.tell([one], float(smooth(one)))
        band(axis, x, *search.predict(x[:, None]), BLUE)
        axis.plot(known, smooth(known), "o", color=DARK, ms=3.5)
        axis.set_ylim(-3.2, 3.2)
    figure.supxlabel("parameter", fontsize=10)
    figure.supylabel("value", fontsize=10)
    return figure


def scores(x: Any) -> Any:
    """(n, ITEMS) logits of a click."""
    return x[:, None] * WORLD[0] + WORLD[1]


def law(x: Any, sharpness: Any) -> Any:
    """(n, ITEMS) probabilities of a policy that prefers items with high scores."""
    weights = np.exp(sharpness * scores(x))
    return weights / weights.sum(axis=1, keepdims=True)


def draw_estimators() -> Figure:
    """Visits of three slots, filled by two logging policies in turn, and prices."""
    rng = np.random.default_rng(1)
    logger = (np.arange(VISITS) % 2).repeat(SLOTS)
    x, rows = rng.normal(size=VISITS * SLOTS), np.arange(VISITS * SLOTS)
    both = np.stack([law(x, sharpness) for sharpness in (-0.4, 0.4)])
    logging, target = both[logger, rows], law(x, 2.0)
    item = (rng.random((len(x), 1)) > logging.cumsum(axis=1)).sum(axis=1).clip(max=ITEMS - 1)
    clicked = (rng.random(len(x)) < 1 / (1 + np.exp(-scores(x)[rows, item]))) * 1.0
    place = np.tile(np.arange(SLOTS), VISITS)
    log = ope.make_log(
        action=item,
        reward=clicked,
        propensity=logging[rows, item],
        context=np.stack([x, place], axis=1),
        action_features=np.eye(ITEMS // 2).repeat(2, axis=0),
        logging=logging,
    )
    sessions, slates = ope.EpisodeLog(log, rows // SLOTS), (VISITS, SLOTS)
    returns = ope.predict_returns(sessions, target, seed=0)
    slate = ope.make_slate_log(**{key: getattr(log, key).reshape(slates) for key in ("action", "reward", "propensity")})
    many = np.random.default_rng(2).normal(size=200_000)
    value = float((law(many, 2.0) / (1 + np.exp(-scores(many)))).sum(axis=1).mean())
    best, price = 1 + 0.3 * np.sin(x), rng.uniform(0, 2, size=len(x))
    earned = 1 - (price - best) ** 2 + 0.3 * rng.normal(size=len(x))
    prices = ope.make_continuous_log(action=price, reward=earned, density=np.full(len(x), 0.5))
    cases = {
        "decisions": (log, target, ope.predict_rewards(log, seed=0), value),
        "slates of three": (slate, target.reshape(*slates, ITEMS), returns.reshape(*slates, ITEMS), SLOTS * value),
        "sessions of three": (sessions, target, returns, SLOTS * value),
        "prices": (prices, best + 0.2, np.full(len(x), earned.mean()), 0.96),
    }
    settings = {
        "balanced_loggers": {"mixture": both.mean(axis=0)[rows, item]},
        "weighted_loggers": {"logger": logger},
    }
    every = {name: ope.REGISTRY.make(name, **settings.get(name, {})) for name in sorted(ope.REGISTRY.own())}
    chosen = {
        kind: {name: one for name, one in every.items() if one.log is type(given[0])} for kind, given in cases.items()
    }
    figure = Figure(figsize=(8, 7.2), dpi=95, layout="constrained")
    panels = figure.subplots(len(cases), 1, height_ratios=[len(some) + 1.5 for some in chosen.values()])
    for axis, (kind, (given, policy, predicted, truth)) in zip(panels, cases.items(), strict=True):
        table = ope.evaluate(given, policy, predicted, seed=0, estimators=list(chosen[kind].values()))
        errors = np.stack([table["value"] - table["low"], table["high"] - table["value"]])
        figures.intervals(axis, list(chosen[kind]), table["value"].to_numpy(), errors)
        axis.axvline(truth, color=DARK, ls="--", lw=1)
        axis.set_title(kind, fontsize=10, loc="left")
    panels[-1].set_xlabel("value of the policy; dashed: the true one")
    return figure


def losses(name: str) -> np.ndarray:
    """(STEPS,) loss on held-out data at the best learning rate."""
    make: Any = getattr(optax, name, None) or optim.REGISTRY[name]
    options = {key: 4 for key in ("rank",) if key in inspect.signature(make).parameters}
    keys = jax.random.split(jax.random.key(0), 5)
    scale, teacher = jnp.geomspace(1, 0.05, 16), jax.random.normal(keys[0], (16, 8))
    start = {"first": jax.random.normal(keys[1], (16, 24)) / 4, "second": jax.random.normal(keys[2], (24, 8)) / 5}

    def data(key: Any, size: int) -> tuple[Any, Any]:
        x = jax.random.normal(key, (size, 16))
        return x * scale, jnp.tanh(x @ teacher / 2)

    def loss(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ params["first"]) @ params["second"] - y) ** 2)

    def run(rate: Any) -> Any:
        transform = optax.with_extra_args_support(make(lambda count: rate * (1 - count / STEPS), **options))

        def step(carry: Any, key: Any) -> Any:
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params, *data(key, BATCH))
            moved, state = transform.update(gradient, state, params, value=value)
            return (optax.apply_updates(params, moved), state), loss(params, *data(keys[3], 512))

        return jax.lax.scan(step, (start, transform.init(start)), jax.random.split(keys[4], STEPS))[1]

    found = np.asarray(jax.jit(lambda rates: jax.lax.map(run, rates))(RATES))
    return found[np.nanargmin(found[:, -10:].mean(axis=1))]


def draw_optimizers() -> Figure:
    """Gray: all others; dashed: AdamW."""
    figure, panels = grid(sorted(optim.REGISTRY.own()), 4)
    found = {name: losses(name) for name in (*panels, "adamw")}
    for name, axis in panels.items():
        for other in panels:
            axis.plot(found[other], color="0.85", lw=0.7)
        axis.plot(found["adamw"], color=DARK, ls="--", lw=1)
        axis.plot(found[name], color=BLUE, lw=1.8)
        axis.set(yscale="log")
    figure.supxlabel("step", fontsize=10)
    figure.supylabel("loss on held-out data", fontsize=10)
    return figure


FAMILIES = {
    "agents": (draw_agents, agents.REGISTRY),
    "policies": (draw_policies, policies.REGISTRY),
    "surrogates": (draw_surrogates, SURROGATES),
    "estimators": (draw_estimators, ope.REGISTRY),
    "optimizers": (draw_optimizers, optim.REGISTRY),
}


def main(families: tuple[str, ...] = tuple(FAMILIES), out: Path = Path("docs")) -> None:
    """Draw families into a folder."""
    for family in families:
        draw, registry = FAMILIES[family]
        path, shown = out / f"gallery-{family}.png", PngImagePlugin.PngInfo()
        draw().savefig(path)
        shown.add_text("Description", " ".join(sorted(registry.own())))
        Image.open(path).quantize(64).save(path, optimize=True, pnginfo=shown)  # fewer colors make a smaller file


if __name__ == "__main__":
    command(main)
