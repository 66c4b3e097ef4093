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
# A belief over functions decides where to evaluate next. `seqdec.minimize` does all of it; below are the parts.

# %%
import matplotlib.pyplot as plt
import numpy as np

import seqdec
from seqdec.bo import BayesianOptimizer, Integer, Real
from seqdec.envs import objectives

# %% [markdown]
# ## In one call
#
# Branin's function has three equal minima of 0.397887 in a box.

# %%
branin = objectives.branin()
bounds = [tuple(pair) for pair in branin.bounds]
result = seqdec.minimize(branin, bounds, n_calls=25, seed=0, progress=False)
print(result.message)
print("x =", result.x, " value =", result.fun, " regret =", float(branin.regret(result.fun)))

# %% [markdown]
# Where it looked: the first points are spread, the others close in on the minima.

# %%
grid = np.stack(np.meshgrid(np.linspace(-5, 10, 80), np.linspace(0, 15, 80)), axis=-1)
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
# ## One question at a time
#
# `ask` and `tell` leave the evaluation to you: in any order, in batches, with failures, and with points of your own.

# %%
optimizer = BayesianOptimizer([Real(1e-5, 1.0, log=True), Integer(1, 6)], seed=0, capacity=16)
for number in range(12):
    trial = optimizer.ask()
    rate, layers = trial.x
    optimizer.tell(trial, (np.log10(rate) + 2.5) ** 2 + 0.1 * abs(layers - 3), failed=number == 5)
print(optimizer.best)
optimizer.trials_dataframe()

# %% [markdown]
# ## Another belief, another acquisition
#
# HiLoFi over a neural network, with Thompson sampling: a function is drawn from the belief and climbed from many
# starts. Its cost per query does not grow with the history.

# %%
small = {"features": (50, 50), "rank": 20}
for name, options in (("gp", {}), ("hilofi", {"surrogate_options": small})):
    found = seqdec.minimize(branin, bounds, n_calls=25, seed=0, surrogate=name, progress=False, **options)
    best = np.minimum.accumulate(found.func_vals)
    plt.semilogy(np.arange(1, 26), best - branin.minimum, label=f"{found.surrogate}, {found.acquisition}")
plt.xlabel("call")
plt.ylabel("regret")
plt.legend(frameon=False)
plt.show()
