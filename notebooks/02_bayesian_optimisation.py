# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Bayesian optimisation
#
# A belief over functions decides where to evaluate next. `seqdec.minimize` does everything; its parts follow below.

# %%
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
# The evaluated points: the first are spread over the box, the others concentrate at the minima.

# %%
grid = np.stack(np.meshgrid(np.linspace(-5, 10, 40), np.linspace(0, 15, 40)), axis=-1)
values = np.array([[branin(point) for point in row] for row in grid])
points = np.array(result.x_iters)
plt.figure(figsize=(5, 4))
plt.contourf(grid[..., 0], grid[..., 1], np.log1p(values), 20, cmap="Blues_r")
plt.scatter(points[:, 0], points[:, 1], c=np.arange(len(points)), cmap="autumn", edgecolor="k")
plt.colorbar(label="call")
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
# HiLoFi over a neural network, with Thompson sampling: a function is drawn from the belief and maximised by gradient
# ascent from many starting points. Its cost per query does not grow with the number of evaluations.

# %%
small = {"features": (20,), "rank": 5}
search = Search(raw_samples=128, num_restarts=2)
other = seqdec.minimize(
    branin, bounds, n_calls=20, seed=4, surrogate="hilofi", surrogate_options=small, search=search, progress=False
)
for found in (result, other):
    best = np.minimum.accumulate(found.func_vals)
    plt.semilogy(np.arange(1, 21), best - branin.minimum, label=f"{found.surrogate}, {found.acquisition}")
plt.xlabel("call")
plt.ylabel("regret")
plt.legend(frameon=False)
plt.show()
