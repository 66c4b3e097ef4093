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
# # A first bandit: handwritten digits
#
# **What you learn:** how to make an environment and agents, let them act, and read the results; what a belief is, and
# what a propensity is.
#
# **Time:** about a minute on two cores, most of it compilation. The images come with scikit-learn.
#
# Each step shows an 8 x 8 image. The agent names one of ten classes and learns only whether it was right. It is never
# told the right class, so it has to try classes that it is unsure of, and stop once it is sure.

# %%
# %matplotlib inline
import jax
import matplotlib.pyplot as plt
import numpy as np

import seqdec
from seqdec import filters, likelihoods, models, results

# %% [markdown]
# ## Environments and agents
#
# `envs.make` returns two pure functions with their data; an agent is a belief with a policy. `auto`, the default,
# combines regressions and a network. HiLoFi is a Kalman filter of the network's weights. The EKF keeps one full
# covariance for all parameters, which is affordable for a linear model.

# %%
env = seqdec.envs.make("digits")
state, image = env.reset(jax.random.key(0), env.params)
plt.figure(figsize=(2, 2))
plt.imshow(np.asarray(image).reshape(8, 8), cmap="gray_r")
plt.axis("off")
plt.show()

# %%
linear = models.MLP(10, ())
team = {
    "auto": seqdec.agents.auto(env),
    "hilofi": seqdec.agents.hilofi(env, rank=10),
    "linear": seqdec.agents.ekf(env, model=linear),
    "epsilon-greedy": seqdec.agents.ekf(env, model=linear, policy="epsilon_greedy"),
}
runs = {name: seqdec.run(agent, env, 1000, seed=0, num_seeds=5) for name, agent in team.items()}
results.readable(results.compare(runs))[["reward", "regret", "% of optimum"]]

# %% [markdown]
# Reward and regret are sums over 1,000 steps, averaged over five seeds, with 95% intervals. Regret is the reward that
# an agent who knows every answer would have earned in addition. Guessing earns 100. On images of 64 pixels a linear
# model goes far, so HiLoFi is not ahead of it in 1,000 steps; `auto` weighs both kinds.

# %%
results.plot_comparison(runs)

# %% [markdown]
# ## A belief without the loop
#
# A filter can be used by itself. `moments` predicts every arm's reward with the uncertainty that more data would remove
# (`cov`) apart from the noise that no data removes (`noise`); `update` conditions on the arm that was played.

# %%
network = models.network(linear, image)
flt = filters.ekf(network, likelihoods.gaussian(0.01), initial_std=0.3)
belief = flt.init(jax.random.key(1), network.init(jax.random.key(2)))
before = jax.jit(flt.moments)(belief, image)
belief, info = jax.jit(flt.update)(belief, image, 1.0, observed=3)
after = jax.jit(flt.moments)(belief, image)
print("arm 3: standard deviation", float(before.cov[3, 3]) ** 0.5, "->", float(after.cov[3, 3]) ** 0.5)
print("log density of the observation:", float(info.log_density))

# %% [markdown]
# ## Propensities
#
# Every action comes with the probability by which it was drawn, which off-policy evaluation needs.

# %%
print("epsilon-greedy, smallest:", runs["epsilon-greedy"].propensities.min())
print("hilofi, mean over time:", runs["hilofi"].propensities.mean(0)[::250].round(2))

# %% [markdown]
# ## A changing environment
#
# Five arms whose rewards are linear in the context; after 300 steps the arms change places. With process noise a belief
# forgets: it does worse while nothing changes, and recovers soon after the change.

# %%
changing = seqdec.envs.nonstationary(seqdec.envs.linear(noise_std=0.1), change_points=[300], kind="permute")
followers = {
    f"process noise {variance:g}": seqdec.agents.ekf(changing, model=models.MLP(5, ()), process_noise=variance)
    for variance in (0.0, 1e-2)
}
results.plot_comparison({n: seqdec.run(agent, changing, 600, seed=0, num_seeds=3) for n, agent in followers.items()})

# %% [markdown]
# ## Where to go next
#
# - [An environment of your own](02_own_environment.ipynb).
# - [Bandits](../docs/bandits.md): agents that need no settings (`auto`), policies, results on digits, MNIST and tables.
# - [Filters](../docs/filters.md): the beliefs, their networks and likelihoods.
#
# On the command line, `seqdec run digits` compares five agents and random play and writes the table and the figures.
