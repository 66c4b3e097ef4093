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
# # A neural bandit on handwritten digits
#
# Each step shows an 8 x 8 image. The agent names one of ten classes and learns only whether it was right. It never sees
# the right answer, so it has to try classes that it is unsure of, and stop once it is sure.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import seqdec
from seqdec import filters, likelihoods, models, results

# %% [markdown]
# ## Environments and agents
#
# `envs.make` returns two pure functions with their data; an agent is a belief with a policy. HiLoFi keeps a full
# covariance for the last layer and a low-rank one for the hidden layers; LRKF one low-rank covariance for all.

# %%
env = seqdec.envs.make("digits")
state, image = env.reset(jax.random.key(0), env.params)
plt.figure(figsize=(2, 2))
plt.imshow(np.asarray(image).reshape(8, 8), cmap="gray_r")
plt.axis("off")
plt.show()

# %%
team = {
    "hilofi": seqdec.agents.hilofi(env, rank=20),
    "lrkf": seqdec.agents.lrkf(env, rank=20),
    "hilofi, epsilon-greedy": seqdec.agents.hilofi(env, rank=20, policy="epsilon_greedy"),
}
runs = {name: seqdec.run(agent, env, 600, seed=0, num_seeds=3) for name, agent in team.items()}
results.compare(runs)

# %% [markdown]
# Regret is what an agent that knows every answer would have earned more. Bands are 95% intervals over the seeds.

# %%
results.plot_comparison(runs)

# %% [markdown]
# ## What the belief knows
#
# A filter can be used without the loop. `moments` predicts every arm's reward with the uncertainty that more data would
# remove (`cov`) apart from the noise that no data removes (`noise`); `update` conditions on the arm that was played.

# %%
network = models.network(models.MLP(10), image)
likelihood = likelihoods.gaussian(0.01)
flt = filters.hilofi(network.apply, likelihood, is_last=network.is_last, rank=20, initial_std_last=0.3)
belief = flt.init(jax.random.key(1), network.init(jax.random.key(2)))
before = flt.moments(belief, image)
belief, info = flt.update(belief, image, 1.0, observed=3)
after = flt.moments(belief, image)
print("arm 3: standard deviation", float(before.cov[3, 3]) ** 0.5, "->", float(after.cov[3, 3]) ** 0.5)
print("log density of the observation:", float(info.log_density))

# %% [markdown]
# ## Propensities
#
# Every action comes with the probability that the policy had of playing it: what off-policy evaluation needs. It is
# exact for epsilon-greedy, greedy and UCB, and a Monte Carlo estimate for the sampling policies.

# %%
exact = runs["hilofi, epsilon-greedy"]
print("exact:", exact.exact_propensity, " smallest:", exact.propensities.min())
sampled = runs["hilofi"]
print("exact:", sampled.exact_propensity, " mean over time:", sampled.propensities.mean(0)[::100].round(2))

# %% [markdown]
# ## When the world changes
#
# The same environment, but the meaning of the labels is shuffled after 300 steps. Process noise keeps a belief able to
# follow.

# %%
changing = seqdec.envs.nonstationary(env, change_points=[300], kind="permute")
followers = {f"process noise {q:g}": seqdec.agents.lrkf(changing, rank=20, process_noise=q) for q in (1e-6, 1e-3)}
results.plot_comparison({n: seqdec.run(agent, changing, 600, seed=0, num_seeds=3) for n, agent in followers.items()})
