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
# # MNIST as a bandit
#
# **What you learn:** how a network with a belief over its weights learns 28 x 28 images from rewards alone, how to
# compare it with a network trained on a replay memory, and how to find the images it is unsure of.
#
# **Time:** about half a minute on two cores, most of it compilation.
#
# **Data:** the MNIST database of handwritten digits (LeCun, Cortes, Burges): 60,000 training images. `seqdec` looks for
# its four files in the folder `$SEQDEC_DATA/mnist`; if they are missing it downloads them once, checks their SHA-256
# sums and keeps them in your cache folder ([data](../docs/data.md)).

# %%
# %matplotlib inline
import jax
import matplotlib.pyplot as plt
import numpy as np

import seqdec
from seqdec import agents, models, results

# %% [markdown]
# ## The environment
#
# Each step shows one image. The agent names a digit and earns 1 if it is right, else 0; it is never told which digit
# would have been right.

# %%
env = seqdec.envs.make("mnist")
figure, axes = plt.subplots(1, 8, figsize=(8, 1.2), layout="constrained")
for seed, axis in enumerate(axes):
    _, image = env.reset(jax.random.key(seed), env.params)
    axis.imshow(np.asarray(image).squeeze(), cmap="gray_r")
    axis.axis("off")
plt.show()
print("observation:", env.observation_space.shape, " actions:", env.action_space.n)

# %% [markdown]
# ## Two agents
#
# Both have the same small network. HiLoFi keeps a Gaussian belief over its weights and learns from each reward once.
# `replay_adamw` keeps no belief: it trains the network by AdamW on minibatches of a memory of all its observations.
# Without `model=` both take LeNet5, a convolutional network, which is better and takes longer to compile.

# %%
network = models.MLP(10, (50, 50))
team = {
    "hilofi": agents.hilofi(env, model=network, rank=20),
    "replay_adamw": agents.make("replay_adamw", env, model=network),
}
runs = {
    name: seqdec.run(agent, env, 1500, seed=0, num_seeds=3, diagnostics=("observation",))
    for name, agent in team.items()
}
results.readable(results.compare(runs))[["reward", "regret", "% of optimum"]]

# %% [markdown]
# Guessing earns 150 in 1,500 steps. Intervals from three seeds are wide, and 1,500 images are few: this does not say
# which agent is better. In 40,000 steps with ten seeds the order is clear; the page on
# [bandits](../docs/measurements/bandits.md#mnist) has the figures.

# %%
results.plot_comparison(runs)

# %% [markdown]
# ## Which images is it unsure of?
#
# The propensity is the probability with which the policy named the digit that it named. HiLoFi samples from its
# belief, so a low propensity means that other digits were nearly as likely. These are the least certain and the most
# certain of the last 200 decisions of one seed, in a blue frame where the digit was right and in a red one where not.

# %%
run = runs["hilofi"]
last = np.arange(1300, 1500)
ranked = last[np.argsort(run.propensities[0, last], kind="stable")]
figure, axes = plt.subplots(2, 8, figsize=(9, 3.2), layout="constrained")
for axis, step in zip(axes.ravel(), [*ranked[:8], *ranked[-8:]], strict=True):
    axis.imshow(run.diagnostics["observation"][0, step].squeeze(), cmap="gray_r")
    axis.set_title(f"{run.actions[0, step]}: {run.propensities[0, step]:.2f}", fontsize=10)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(color="#0072B2" if run.rewards[0, step] else "#D55E00", lw=2.5)
figure.suptitle("Digit named and its propensity: least certain above, most certain below", fontsize=11)
plt.show()

# %% [markdown]
# A useful belief is right more often where it is more certain:

# %%
certain = np.array_split(ranked, 2)
for name, rows in zip(("less certain half", "more certain half"), certain, strict=True):
    chance = run.propensities[0, rows].mean()
    print(f"{name}: mean propensity {chance:.2f}, right {100 * run.rewards[0, rows].mean():.0f}%")

# %% [markdown]
# ## Where to go next
#
# - [A recommender's log](05_recommender_log.ipynb): candidates with features instead of classes.
# - [Bandits](../docs/bandits.md): results on MNIST, the default agent `auto`, baselines. `seqdec run mnist` compares
#   seven agents with LeNet5.
# - [Data](../docs/data.md): Fashion-MNIST, tables, and any other data set in idx files.
