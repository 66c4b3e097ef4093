# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What a belief does not know
#
# **What you learn:** how to tell the uncertainty that more data would remove from the noise that stays, what makes a
# belief uncertain where there are no data, and how to check that its intervals are right.
#
# **Time:** about a quarter of a minute on two cores.
#
# A bandit explores where its belief is uncertain. This notebook looks at that uncertainty itself: a network of one
# input learns a curve from noisy points, one at a time and once each. Points are missing in the middle. A useful
# belief is certain where there were points, and uncertain in the gap and outside.

# %%
# %matplotlib inline
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from seqdec import filters, likelihoods, models

rng = np.random.default_rng(0)
x = rng.choice([-1.0, 1.0], 160) + rng.uniform(-0.6, 0.6, 160)
noise_std = 0.2
y = np.sin(4 * x) + noise_std * rng.normal(size=160)
train, held_out = slice(0, 120), slice(120, None)
grid = np.linspace(-3, 3, 121)

# %% [markdown]
# ## A network whose features bend
#
# Uncertainty about weights is uncertainty about the curve only where the network's features can bend. With biases of
# zero every ELU bends at the origin, in the middle of the gap; biases from N(0, 1) spread the bends over the data.

# %%
plain = models.network(models.MLP(1, (64, 64)), jnp.zeros(1))


def bent(key):
    """Initial parameters with wide weights and biases, so that features bend within the data."""
    params = plain.init(key)
    for place, name in enumerate(("hidden_0", "hidden_1")):
        bias = jax.random.normal(jax.random.fold_in(key, place), params[name]["bias"].shape)
        params = {**params, name: {"kernel": 1.5 * params[name]["kernel"], "bias": bias}}
    return params


# %% [markdown]
# ## Learning, and asking
#
# `moments` keeps two kinds of uncertainty apart: `cov` is that of the expected response, which more data would reduce;
# `noise` is the variance of the observations, which stays.


# %%
def study(flt, init):
    """Epistemic deviation and mean on the grid after 10, 30 and 120 observations, and at the held-out points."""
    update, moments = jax.jit(flt.update), jax.jit(jax.vmap(flt.moments, (None, 0)))
    belief, bands = flt.init(jax.random.key(1), init(jax.random.key(0))), {}
    for count, (point, response) in enumerate(zip(x[train], y[train], strict=True), 1):
        belief, _ = update(belief, jnp.float32([point]), jnp.float32([response]))
        if count in (10, 30, 120):
            found = moments(belief, jnp.asarray(np.concatenate([grid, x[held_out]]), jnp.float32)[:, None])
            bands[count] = np.asarray(found.mean[:, 0]), np.sqrt(np.asarray(found.cov[:, 0, 0]))
    return bands


likelihood = likelihoods.gaussian(noise_std**2)
team = {
    "HiLoFi, features that bend": (
        filters.hilofi(plain, likelihood, rank=20, initial_std_hidden=0.03, initial_std_last=0.7), bent,
    ),
    "HiLoFi, biases of zero": (
        filters.hilofi(plain, likelihood, rank=20, initial_std_hidden=0.03, initial_std_last=0.7), plain.init,
    ),
    "LRKF of rank 20": (filters.lrkf(plain, likelihood, rank=20, initial_std=0.7), bent),
}  # fmt: skip
bands = {name: study(*pair) for name, pair in team.items()}

# %%
figure, axes = plt.subplots(len(team), 3, figsize=(10, 7), sharex=True, sharey=True, layout="constrained")
for row, (name, stages) in zip(axes, bands.items(), strict=True):
    for axis, (count, (mean, std)) in zip(row, stages.items(), strict=True):
        mean, std = mean[: len(grid)], std[: len(grid)]
        for deviation, alpha, label in (
            (std, 0.4, "95% band of the curve"),
            (np.hypot(std, noise_std), 0.2, "95% band of an observation"),
        ):
            low, high = mean - 1.96 * deviation, mean + 1.96 * deviation
            axis.fill_between(grid, low, high, alpha=alpha, lw=0, color="C0", label=label)
        axis.plot(grid, mean, "C0", label="mean")
        axis.plot(grid, np.sin(4 * grid), "0.4", ls="--", lw=1, label="truth")
        axis.plot(x[train][:count], y[train][:count], "k.", ms=3, label="points")
        axis.set_title(f"{name}: {count} points", fontsize=9)
axes[0, 0].set_ylim(-4, 4)
figure.supxlabel("x")
figure.supylabel("y")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False)
plt.show()

# %% [markdown]
# HiLoFi keeps the full covariance of the last layer, and with features that bend its band opens in the gap. With
# biases of zero it is nearly as sure there as at the data. LRKF keeps a covariance of rank 20 over all weights: no
# direction is left for what it has not seen, and its band leaves out the truth. This is one order of the points and
# one initialization; others give other numbers.
#
# ## Are the bands right?
#
# 95% of held-out points should lie in the band of an observation. The ratio compares the deviation in the middle of the
# gap with the median at the held-out points.

# %%
for name, stages in bands.items():
    mean, std = stages[120]
    held, spread = mean[len(grid) :], np.hypot(std[len(grid) :], noise_std)
    covered = np.mean(np.abs(y[held_out] - held) <= 1.96 * spread)
    ratio = std[len(grid) // 2] / np.median(std[len(grid) :])
    print(f"{name:28} covers {100 * covered:.0f}%; deviation in the gap / at the data: {ratio:.1f}")

# %% [markdown]
# With 40 held-out points, one point more or less is 2.5%.
#
# ## Where to go next
#
# - [MNIST as a bandit](04_mnist_bandit.ipynb): the same beliefs at work on images.
# - [Filters](../docs/filters.md): what each of them keeps, and its settings.
# - [Reproduction](../docs/measurements/reproduction.md): `seqdec run in-between` does the same with the paper's network
#   and data, for several ranks and seeds.
