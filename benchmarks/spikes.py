"""Updates of every optimizer after one gradient 1,000 and 1e20 times the usual, as `docs/optimizers-spikes.png`.

    python benchmarks/spikes.py [--out docs/optimizers-spikes.png]

A matrix of 12 x 16 gets gradients of a mean and as much noise, of which one, after 40 steps, is longer; the same noise
without it is the reference. `rms=None`, else the norms are always the same; ranks are 4; the loss that KOALA sees is 1
in every step. The table shows how many steps after it the norm of an update is below 85% of the reference's, and the
largest ratio.
"""

import inspect
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness import command, table
from matplotlib.figure import Figure

from seqdec import figures, optim
from seqdec.commands.folder import save_figure

SPIKE, AFTER = 40, 160
FACTORS = {"without": 1.0, "1,000 times": 1e3, "1e20 times": 1e20}
STYLES = ({"color": "0.6", "lw": 1.2}, {"color": "#0072B2", "lw": 3.2}, {"color": "#E69F00", "lw": 1.2})
RANKED = ("alice", "alice_0", "apollo", "fira")


def norms(name: str) -> np.ndarray:
    """(factors, steps) of the updates."""
    make = optim.REGISTRY[name]
    options: dict[str, Any] = {"rms": None} if "rms" in inspect.signature(make).parameters else {}
    transform = make(1.0, **options, **({"rank": 4} if name in RANKED else {}))
    rng = np.random.default_rng(0)
    gradients = 0.02 * (rng.normal(size=(12, 16)) + rng.normal(size=(SPIKE + AFTER, 12, 16)))
    params = {"hidden": jnp.ones((12, 16))}

    def run(factor):
        def step(state, one):
            number, gradient = one
            gradient = {"hidden": gradient * jnp.where(number == SPIKE, factor, 1)}
            moved, state = transform.update(gradient, state, params, value=jnp.float32(1.0))
            return state, jnp.linalg.norm(moved["hidden"])

        rows = jnp.arange(SPIKE + AFTER), jnp.asarray(gradients, jnp.float32)
        return jax.lax.scan(step, transform.init(params), rows)[1]

    factors = jnp.asarray(list(FACTORS.values()), jnp.float32)
    return np.asarray(jax.jit(lambda factors: jax.lax.map(run, factors))(factors), np.float64)


def main(out: Path = Path("docs/optimizers-spikes.png")) -> None:
    """Print the table and draw the figure."""
    names = optim.REGISTRY.names()
    figure = Figure(figsize=(10, 8), dpi=110, layout="constrained")
    panels = figure.subplots(-(-len(names) // 4), 4, sharex=True, sharey=True).ravel()
    row = table("optimizer", *(f"below 85%, {factor}" for factor in list(FACTORS)[1:]), "largest")
    for axes, name in zip(panels, names, strict=False):
        found = norms(name)
        usual = found[0, SPIKE - 10 :].mean()
        for label, style, values in zip(FACTORS, STYLES, found, strict=True):
            axes.plot(np.arange(-10, AFTER), values[SPIKE - 10 :] / usual, label=label, **style)
        axes.set_title(name, fontsize=9, loc="left")
        ratios = found[1:, SPIKE:] / found[0, SPIKE:]
        low = [int(np.max(np.nonzero(one < 0.85)[0], initial=-1)) + 1 for one in ratios]
        row(name, *low, f"{ratios.max():.2f}")
    for axes in panels:
        axes.set(yscale="log", ylim=(0.01, 10), yticks=[0.01, 0.1, 1, 10], yticklabels=["0.01", "0.1", "1", "10"])
        axes.axvline(0, color="0.85", lw=0.8, zorder=0)
        axes.grid(axis="y", color="0.92", lw=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    for axes in panels[-4:]:
        axes.set_xlabel("steps after the long gradient")
    figure.supylabel("norm of the update, mean without it = 1", fontsize=10)
    figures.legend(figure, [panels[0]], list(FACTORS))
    save_figure(out, figures.titled(figure, "Updates after one gradient of 1,000 and 1e20 times the usual length"))


if __name__ == "__main__":
    command(main)
