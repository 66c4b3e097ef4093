"""The pictures of docs/concepts.md.

    python benchmarks/concepts.py [--out docs]          # 25 CPU seconds

concepts-belief.png       a belief before data, after 10 and after 60 observations with a gap between them
concepts-sampling.png     on the last of these beliefs: one decision of three samplers among 61 actions, and how often
                          each action is chosen in 4,000 decisions
concepts-policies.png     propensities of every policy on one belief over three actions
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from harness import command
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqdec import filters, likelihoods, linalg, models, policies
from seqdec.commands.folder import save_figure
from seqdec.core import Acquisition, Filter, Posterior, Predictive
from seqdec.figures import finish_axis
from seqdec.policies.common import played

NOISE_STD, REACH, STAGES = 0.2, 3.0, (0, 10, 60)
GRID = np.linspace(-REACH, REACH, 181, dtype=np.float32)[:, None]
ACTIONS = GRID[::3]
BLUE, GREEN, ORANGE, DARK = "#0072B2", "#009E73", "#D55E00", "0.25"
WIDE = 1.96
"""Standard deviations from the mean to the end of a 95% interval."""
DECISIONS = 4000


class Data(NamedTuple):
    """Inputs and noisy responses, (60,) each; none between -0.7 and 0.9."""

    x: np.ndarray
    y: np.ndarray


def truth(x: np.ndarray) -> np.ndarray:
    """The expected response."""
    return np.sin(2 * x) + 0.3 * x


def data() -> Data:
    """In random order, both sides of the gap in turn."""
    rng, left = np.random.default_rng(0), np.arange(STAGES[-1]) % 2 == 0
    x = np.where(left, rng.uniform(-2.3, -0.7, len(left)), rng.uniform(0.9, 2.3, len(left))).astype(np.float32)
    return Data(x, (truth(x) + NOISE_STD * rng.normal(size=len(x))).astype(np.float32))


def start() -> tuple[Filter, Any]:
    """HiLoFi over 50 tanh units, whose bends are spread over the inputs, and its belief before data."""
    network = models.network(models.MLP(1, (50,), activation=jnp.tanh), jnp.zeros(1))
    params = network.init(jax.random.key(0))
    slopes, places = np.random.default_rng(1).normal(scale=2, size=50), np.linspace(-1.2 * REACH, 1.2 * REACH, 50)
    hidden = params["hidden_0"]
    hidden["kernel"], hidden["bias"] = (jnp.asarray(part, jnp.float32) for part in (slopes[None], -slopes * places))
    flt = filters.hilofi(
        models.per_candidate(network),
        likelihoods.gaussian(NOISE_STD**2),
        rank=10,
        initial_std_hidden=0.05,
        initial_std_last=0.3,
    )
    return flt, flt.init(jax.random.key(1), params)


def beliefs(flt: Filter, belief: Any, seen: Data) -> list[Any]:
    """The belief after each number of observations in `STAGES`, in one pass."""
    update, found = jax.jit(lambda belief, x, y: flt.update(flt.predict(belief), x, y)[0]), [belief]
    for count, (x, y) in enumerate(zip(*seen, strict=True), start=1):
        belief = update(belief, x[None, None], y[None])
        found += [belief] if count in STAGES else []
    return found


def belief_picture(flt: Filter, found: list[Any], seen: Data) -> Figure:
    """Mean, 95% bands and five draws, a panel for each number of observations."""
    figure = Figure(figsize=(10.5, 3.9), dpi=100, layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, belief, count in zip(axes, found, STAGES, strict=True):
        at = flt.moments(belief, GRID)
        epistemic, noise = jnp.diagonal(at.cov), jnp.diagonal(at.noise)
        band(axis, at.mean, np.sqrt(epistemic + noise), 0.16, "95%, of an observation (with the noise)")
        band(axis, at.mean, np.sqrt(epistemic), 0.36, "95%, of the expected response")
        for key in jax.random.split(jax.random.key(2), 5):
            drawn = flt.response(flt.sample(key, belief), GRID)
            axis.plot(GRID[:, 0], drawn, color=ORANGE, lw=0.8, label="5 draws of the parameters")
        axis.plot(GRID[:, 0], at.mean, color=BLUE, lw=2, label="mean")
        axis.plot(GRID[:, 0], truth(GRID[:, 0]), color=DARK, ls="--", lw=1, label="truth")
        if count:
            axis.plot(seen.x[:count], seen.y[:count], "o", color="k", ms=2.5, label="observations")
        finish_axis(axis, "no observation" if not count else f"{count} observations", "x", "")
        axis.set_ylim(-4, 4)
    axes[0].set_ylabel("response")
    below(figure, axes[-1], 3)
    return figure


def band(axis: Axes, mean: Any, std: Any, alpha: float, label: str) -> None:
    """A 95% band over the grid."""
    axis.fill_between(GRID[:, 0], mean - WIDE * std, mean + WIDE * std, color=BLUE, alpha=alpha, lw=0, label=label)


def below(figure: Figure, axis: Axes, columns: int) -> None:
    """The legend of one panel for all, below them."""
    handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def sampling_picture(posterior: Posterior) -> Figure:
    """One decision of each sampler on the same belief, and how often each action is chosen."""
    samplers: dict[str, tuple[str, Acquisition]] = {
        "predictive sampling": (BLUE, policies.predictive_sampling()),
        "predictive sampling, joint=True": (GREEN, policies.predictive_sampling(joint=True)),
        "Thompson sampling": (ORANGE, policies.thompson()),
    }
    at = posterior.joint(ACTIONS)
    figure = Figure(figsize=(10.5, 5.2), dpi=100, layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey="row", height_ratios=(1.5, 1))
    for column, (name, (color, policy)) in enumerate(samplers.items()):
        scores = jax.jit(jax.vmap(lambda key, policy=policy: policy.score(key, posterior, ACTIONS, None)))
        every = np.asarray(scores(jax.random.split(jax.random.key(3), DECISIONS)))
        above, under = axes[:, column]
        std = np.sqrt(jnp.diagonal(at.cov))
        above.fill_between(
            ACTIONS[:, 0],
            at.mean - WIDE * std,
            at.mean + WIDE * std,
            color="0.5",
            alpha=0.2,
            lw=0,
            label="95%, of the expected response",
        )
        above.plot(ACTIONS[:, 0], at.mean, color=DARK, lw=1.2, label="its mean")
        above.plot(ACTIONS[:, 0], every[0], "-o", color=color, ms=2.5, lw=0.7, label="scores")
        best = np.argmax(every[0])
        above.plot(
            ACTIONS[best, 0], every[0, best], "*", color=color, ms=15, mec="k", mew=0.6, ls="", label="the action"
        )
        finish_axis(above, name, "", "")
        share = np.bincount(np.argmax(every, axis=1), minlength=len(ACTIONS)) / DECISIONS
        under.bar(ACTIONS[:, 0], share, width=0.09, color=color)
        finish_axis(under, "", "action", "")
    axes[0, 0].set_ylabel("drawn score of one decision")
    axes[1, 0].set_ylabel(f"share of {DECISIONS:,} decisions")
    below(figure, axes[0, 2], 4)
    return figure


def three_actions() -> Posterior:
    """Of three actions, given by the mean and the covariance of their expected responses; noise 0.09."""
    at = Predictive(jnp.array([0.5, 0.4, 0.2]), jnp.diag(jnp.array([0.05, 0.15, 0.45]) ** 2), 0.09 * jnp.eye(3))

    def draw(key: jax.Array) -> Any:
        drawn = at.mean + jax.random.normal(key, (3,)) @ linalg.psd_root(at.cov)
        return lambda candidates: drawn

    return Posterior(lambda candidates: at.mean, lambda candidates: at, draw)


def policies_picture(posterior: Posterior) -> Figure:
    """The belief over three actions, and with which probability each policy plays them."""
    at, colors = posterior.joint(None), (BLUE, GREEN, ORANGE)
    chosen = {
        "greedy()": policies.greedy(),
        "epsilon_greedy(epsilon=0.3)": policies.epsilon_greedy(epsilon=0.3),
        "ucb(width=1)": policies.ucb(width=1),
        "thompson(scale=0.5)": policies.thompson(scale=0.5, propensity_samples=DECISIONS),
        "thompson()": policies.thompson(propensity_samples=DECISIONS),
        "epistemic_sampling()": policies.epistemic_sampling(),
        "predictive_sampling()": policies.predictive_sampling(),
    }
    figure = Figure(figsize=(10.5, 3.6), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 2))
    for arm, color in enumerate(colors):
        for std, width, alpha in ((at.cov + at.noise, 3, 0.3), (at.cov, 7, 1.0)):
            half = WIDE * float(jnp.sqrt(std[arm, arm]))
            left.plot([arm] * 2, [at.mean[arm] - half, at.mean[arm] + half], color=color, lw=width, alpha=alpha)
        left.plot(arm, at.mean[arm], "o", color="w", mec="k", ms=6)
    for width, alpha, label in ((7, 1.0, "expected response"), (3, 0.3, "an observation")):
        left.plot([], [], color=DARK, lw=width, alpha=alpha, label=label)
    left.legend(loc="lower left", frameon=False, fontsize=8)
    finish_axis(left, "95% intervals", "action", "response")
    left.set_xticks(range(3))
    left.set_xlim(-0.6, 2.6)
    for row, policy in enumerate(chosen.values()):
        _, every = played(policy, jax.random.key(4), posterior, None, None)
        shares, begin = np.asarray(every), 0.0
        for share, color in zip(shares, colors, strict=True):
            right.barh(row, share, left=begin, color=color, height=0.72)
            if share > 0.05:
                right.text(begin + share / 2, row, f"{share:.2f}", color="w", ha="center", va="center", fontsize=9)
            begin += share
    finish_axis(right, "propensity of actions 0, 1 and 2", "probability", "")
    right.set_yticks(range(len(chosen)), list(chosen))
    right.invert_yaxis()
    right.set_xlim(0, 1)
    return figure


def main(out: Path = Path("docs")) -> None:
    """Draw the three pictures into a folder."""
    seen, (flt, first) = data(), start()
    found = beliefs(flt, first, seen)
    save_figure(out / "concepts-belief.png", belief_picture(flt, found, seen))
    save_figure(out / "concepts-sampling.png", sampling_picture(filters.posterior(flt, found[-1])))
    save_figure(out / "concepts-policies.png", policies_picture(three_actions()))


if __name__ == "__main__":
    command(main)
