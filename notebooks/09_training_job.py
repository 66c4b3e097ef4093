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
# # A tuned training job
#
# **What you learn:** how to tune a training job with choices and logarithmic scales, how to compare the search with
# random search fairly, how unpromising runs are stopped early, and how to use several processes.
#
# **Time:** less than a minute on two cores. The data come with scikit-learn.
#
# The job trains a small network on 300 images of handwritten digits for 8 epochs. Anything that maps settings to a
# number can take its place.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import seqdec
from seqdec.bo import Categorical, Fidelity, Integer, Real
from seqdec.statistics import mean_and_margin

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
train, validation, test = np.split(order[:1500], [300, 900])

# %% [markdown]
# ## The job
#
# Rates and penalties vary over several powers of ten, so they are searched on a logarithmic scale. The solver and the
# activation are choices. The value is the mean cross-entropy on the validation images, in nats.

# %%
space = {
    "rate": Real(1e-4, 1.0, log=True),
    "penalty": Real(1e-6, 1.0, log=True),
    "units": Integer(8, 64),
    "solver": Categorical(("adam", "sgd")),
    "activation": Categorical(("relu", "tanh", "logistic")),
}
EPOCHS = 8


def network(settings):
    """An untrained classifier."""
    return MLPClassifier(
        settings["units"],
        activation=settings["activation"],
        solver=settings["solver"],
        alpha=settings["penalty"],
        learning_rate_init=settings["rate"],
        batch_size=30,
        random_state=0,
    )


def loss(model, rows):
    """Mean cross-entropy of images in nats; a probability counts as at least 1e-6."""
    chances = model.predict_proba(images[rows] / 16)[np.arange(len(rows)), labels[rows]]
    return -np.log(np.maximum(chances, 1e-6)).mean()


def curve(settings):
    """The validation loss after every epoch."""
    model = network(settings)
    for _ in range(EPOCHS):
        model.partial_fit(images[train] / 16, labels[train], classes=np.arange(10))
        yield loss(model, validation)


def job(settings):
    """The validation loss after the last epoch."""
    return list(curve(settings))[-1]


# %% [markdown]
# ## The search
#
# A dict of dimensions gives the job a dict of settings.

# %%
CALLS = 20
result = seqdec.minimize(job, space, n_calls=CALLS, seed=0)
print({name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in result.x.items()})
print(f"validation loss {result.fun:.3f} nats")

# %% [markdown]
# The figure shows the progress, which settings matter according to the belief, slices of the belief through the best
# settings, and all calls.

# %%
result.plot()

# %% [markdown]
# ## Against random search
#
# Both methods get the same number of calls. One run of each would prove nothing, so each has five seeds.

# %%
SEEDS = range(5)


def drawn(rng):
    """Settings drawn uniformly, on the scale of the search."""
    return {
        "rate": 10 ** rng.uniform(-4, 0),
        "penalty": 10 ** rng.uniform(-6, 0),
        "units": int(rng.integers(8, 65)),
        "solver": rng.choice(["adam", "sgd"]).item(),
        "activation": rng.choice(["relu", "tanh", "logistic"]).item(),
    }


def random_search(seed):
    """The values of all calls."""
    rng = np.random.default_rng(seed)
    return [job(drawn(rng)) for _ in range(CALLS)]


values = {
    "random search": np.array([random_search(seed) for seed in SEEDS]),
    "seqdec.minimize": np.array([seqdec.minimize(job, space, n_calls=CALLS, seed=seed).func_vals for seed in SEEDS]),
}
best = {name: np.minimum.accumulate(found, axis=1) for name, found in values.items()}
for name, found in best.items():
    mean, margin = mean_and_margin(found[:, -1])
    print(f"{name:16} best of {CALLS} calls {mean:.3f} ± {margin:.3f} nats (95%, {len(found)} seeds)")
ahead = np.sum(best["seqdec.minimize"][:, -1] < best["random search"][:, -1])
difference, margin = mean_and_margin(best["random search"][:, -1] - best["seqdec.minimize"][:, -1])
print(f"difference {difference:.3f} ± {margin:.3f}; minimize is ahead in {ahead} of {len(SEEDS)} pairs")

# %%
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
calls = np.arange(1, CALLS + 1)
for color, (name, found) in zip(("0.5", "#0072B2"), best.items(), strict=True):
    axis.plot(calls, found.T, color=color, lw=0.8, alpha=0.5)
    axis.plot(calls, np.median(found, axis=0), color=color, lw=2.5, label=f"{name}, median")
axis.set(xlabel="call", ylabel="best validation loss so far / nats", yscale="log", ylim=(0.18, 3))
axis.set_yticks([0.2, 0.3, 0.5, 1.0, 2.0], ["0.2", "0.3", "0.5", "1", "2"])
axis.minorticks_off()
axis.xaxis.set_major_locator(plt.MultipleLocator(5))
axis.set_title(f"Thin lines: each of {len(SEEDS)} seeds", fontsize=10, loc="left")
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# Where the interval of the difference contains 0, five seeds do not settle which method is better on this job. The gain
# also depends on the ranges: where most settings do well, random search is as good and needs no model; where most
# settings learn nothing, few calls may be too few for either method.
#
# ## Early stopping
#
# A generator that yields the loss after every epoch lets the search look at learning curves. It asks for 1, 3 or 8
# epochs, and ends a curve that is unlikely to become the best. `n_calls` is then a budget, in trainings of 8 epochs.

# %%
early = seqdec.minimize(curve, space, n_calls=CALLS, fidelity=Fidelity(1, EPOCHS), seed=0)
trials = early.optimizer.trials_dataframe()
print(f"{early.nfev} trainings for the price of {early.cost:.1f}; validation loss {early.fun:.3f} nats")
trials.groupby(["state", "fidelity"])["value"].agg(["count", "min", "median"]).round(3)

# %% [markdown]
# ## Several processes
#
# `workers=2` trains in two processes, a batch of two at a time. Starting them takes some seconds, so this pays for jobs
# that take longer than this one. `workers=seqdec.executors.Local(2, call_timeout=60)` also ends a training that takes
# more than a minute, which then counts as failed.

# %%
two = seqdec.minimize(job, space, n_calls=8, batch_size=2, workers=2, seed=0)
print(f"validation loss {two.fun:.3f} nats after {two.nfev} calls")

# %% [markdown]
# ## The last word: images that no search has seen
#
# The best of many validation losses is too good to be true: it was chosen for being small. So the settings are judged
# on the test images, once.

# %%
model = network(result.x)
for _ in range(EPOCHS):
    model.partial_fit(images[train] / 16, labels[train], classes=np.arange(10))
print(f"validation loss {loss(model, validation):.3f}, test loss {loss(model, test):.3f} nats")
print(f"test accuracy {100 * model.score(images[test] / 16, labels[test]):.1f}% of {len(test)} images")

# %% [markdown]
# ## Where to go next
#
# - [Optimizers](10_optimizers.ipynb): other ways to train.
# - [Bayesian optimization](../docs/bayesian-optimization.md): stopping and resuming, failures, constraints, several
#   objectives; results against random search, BoTorch and Optuna.
# - [Sweeps](../docs/sweeps.md): many runs on all cores or on a cluster.
