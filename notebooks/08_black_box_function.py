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
# # A black-box function
#
# **What you learn:** how to find the minimum of an expensive function in few calls, in one call or with ask and tell,
# how to choose another belief, how to read the figures of a search, and how to search for a front of two objectives.
#
# **Time:** about half a minute on two cores.
#
# A belief over functions decides where to evaluate next. `seqdec.minimize` does everything; its parts follow below.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

import seqdec
from seqdec.bo import BayesianOptimizer, Search
from seqdec.envs import objectives

# %% [markdown]
# ## In one call
#
# Branin's function has three equal minima of 0.397887 in a box.

# %%
branin = objectives.branin()
bounds = [tuple(pair) for pair in branin.bounds]
result = seqdec.minimize(branin, bounds, n_calls=20, seed=4, progress=False)
print(result.message)
print("x =", result.x, " value =", result.fun, " regret =", float(branin.regret(result.fun)))

# %% [markdown]
# The evaluated points, from the first (red) to the last (yellow): the first two are of a Sobol sequence, and the
# belief chooses the others, near its best points and where it knows little.

# %%
grid = np.stack(np.meshgrid(np.linspace(-5, 10, 40), np.linspace(0, 15, 40)), axis=-1)
values = np.array([[branin(point) for point in row] for row in grid])
points = np.array(result.x_iters)
plt.figure(figsize=(5, 4))
plt.contourf(grid[..., 0], grid[..., 1], np.log1p(values), 20, cmap="Blues_r")
plt.scatter(points[:, 0], points[:, 1], c=np.arange(1, len(points) + 1), cmap="autumn", edgecolor="k")
plt.colorbar(label="call", ticks=[1, 5, 10, 15, 20])
plt.xlabel("x_0")
plt.ylabel("x_1")
plt.show()

# %% [markdown]
# ## Ask and tell
#
# `ask` and `tell` leave the evaluation to you: in any order, in batches, with failures, and with points of your own.

# %%
optimizer = BayesianOptimizer(bounds, seed=0, capacity=20)
for number in range(12):
    trial = optimizer.ask()
    optimizer.tell(trial, branin(trial.x), failed=number == 5)
print(optimizer.best)
optimizer.trials_dataframe()

# %% [markdown]
# ## Another belief, another acquisition
#
# The default above is an exact Gaussian process with log expected improvement, whose cost grows with the cube of the
# number of evaluations. `hilofi` is HiLoFi over a wide network of cosines and sines, whose prior is close to that of
# the Gaussian process. The cost of learning a value does not grow with the number of evaluations, and the default
# acquisition is log expected improvement too. `hilofi_mlp` is HiLoFi over a multilayer perceptron, with Thompson
# sampling: a function is drawn from the belief and maximized by gradient ascent from several starting points. The
# networks and the searches of both acquisitions are smaller than the defaults here, to be fast. Each curve is a single
# run: they show how to choose a surrogate, not which one is better.

# %%
smaller = {"hilofi": {"units": 128}, "hilofi_mlp": {"features": (20,), "rank": 5}}
search = Search(raw_samples=128, num_restarts=2)
others = [
    seqdec.minimize(
        branin, bounds, n_calls=20, seed=4, surrogate=name, surrogate_options=options, search=search, progress=False
    )
    for name, options in smaller.items()
]
for found in (result, *others):
    best = np.minimum.accumulate(found.func_vals)
    plt.semilogy(np.arange(1, 21), best - branin.minimum, label=f"{found.surrogate}, {found.acquisition}")
plt.xticks([1, 5, 10, 15, 20])
plt.yticks([0.1, 1, 10], ["0.1", "1", "10"])
plt.xlabel("call")
plt.ylabel("regret of the best value so far, 1 seed")
plt.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Figures of a search
#
# `result.plot()` draws the progress, the importances of the parameters, slices of the belief through the recommended
# point, and all evaluations as lines through their parameters. `result.plot("slices")` and the like draw one panel.

# %%
result.plot(minimum=branin.minimum)

# %% [markdown]
# ## Two objectives
#
# With `objectives=2` the function returns two values, and the search is for their front: the points at which neither
# can be improved without worsening the other. These two are the squared distances to two corners of a square, so that
# the best points are on the line between the corners, where the square roots of both values add up to 1.414. Points
# count if they are better than `reference_point` in both values: here it has the largest value of each. Without it the
# search derives one from the front found so far, and may leave out the ends of the front.


# %%
def distances(x):
    """The squared distances to two corners."""
    return x[0] ** 2 + x[1] ** 2, (x[0] - 1) ** 2 + (x[1] - 1) ** 2


square = [(0.0, 1.0), (0.0, 1.0)]
both = seqdec.minimize(distances, square, n_calls=16, objectives=2, reference_point=(2.0, 2.0), seed=0, progress=False)
for point, pair in zip(both.x, both.fun, strict=True):
    print(np.round(point, 2), np.round(pair, 3), "sum of square roots:", np.sqrt(pair).sum().round(3))

# %% [markdown]
# The figure shows the values of all evaluations, and the front.

# %%
both.plot()

# %% [markdown]
# ## Where to go next
#
# - [A tuned training job](09_training_job.ipynb): choices, logarithmic scales, early stopping, workers.
# - [Bayesian optimization](../docs/bayesian-optimization.md): failures, constraints, noise, resuming, results.
