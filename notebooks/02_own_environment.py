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
# # An environment of your own
#
# **What you learn:** how to write an environment as two pure functions, how to check it, how to compare agents in it
# with the optimum and with random play, and how to run one that already exists for Gymnasium.
#
# **Time:** about half a minute on two cores, most of it compilation.
#
# A café recommends one of four drinks to each guest. It knows the temperature outside and the hour; the guest buys the
# drink or not. Which drink sells when is what the agent has to find out.

# %%
# %matplotlib inline
import gymnasium
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from gymnasium import spaces
from matplotlib.colors import ListedColormap

import seqdec
from seqdec import results
from seqdec.core import Environment, TimeStep

DRINKS = ["hot chocolate", "coffee", "juice", "iced tea"]
COLORS = ListedColormap(["#882255", "#8C510A", "#E69F00", "#56B4E9"])

# %% [markdown]
# ## The truth
#
# Each drink sells best at one temperature and one hour. The functions of an environment get such data as an argument,
# `params`, because what they captured from outside would become a constant of the compiled program.

# %%
params = {"celsius": jnp.array([-2.0, 10.0, 20.0, 32.0]), "hour": jnp.array([18.0, 9.0, 11.0, 16.0])}


def chances(context, params):
    """Chance that a guest buys each drink, (4,), in a context (temperature / °C, hour)."""
    distance = ((context[0] - params["celsius"]) / 12) ** 2 + ((context[1] - params["hour"]) / 5) ** 2
    return 0.1 + 0.7 * jnp.exp(-distance)


# %% [markdown]
# ## Two functions
#
# `reset(key, params)` gives a state and the first observation. `step(key, state, action, params)` gives the next state
# and a `TimeStep`: the next observation, the reward of the action, its regret (the expected reward that the best
# action would have earned in addition), and whether an episode ended. Here the state is the context in which the
# action is taken. Anything random comes from the key.


# %%
def guest(key):
    """A context: temperature in °C and hour of the day."""
    return jax.random.uniform(key, (2,), minval=jnp.array([-10.0, 8.0]), maxval=jnp.array([35.0, 20.0]))


def reset(key, params):
    """The first guest; the state is the context."""
    context = guest(key)
    return context, context


def step(key, state, action, params):
    """Whether the guest buys what is offered, what that costs against the best offer, and the next guest."""
    for_sale, for_next = jax.random.split(key)
    chance, context = chances(state, params), guest(for_next)
    sold = jax.random.bernoulli(for_sale, chance[action]).astype(jnp.float32)
    return context, TimeStep(context, sold, chance.max() - chance[action], jnp.array(False))


low, high = np.array([-10, 8], np.float32), np.array([35, 20], np.float32)
cafe = Environment(reset, step, params, spaces.Box(low, high), spaces.Discrete(4), "café")

# %% [markdown]
# ## Check it
#
# `envs.check` tries the environment and raises an error that names a fault and its remedy. A frequent one: an
# observation that leaves its space.

# %%
seqdec.envs.check(cafe)
try:
    seqdec.envs.check(cafe._replace(observation_space=spaces.Box(0, 1, (2,))))
except ValueError as error:
    print(error)

# %% [markdown]
# ## Agents in it
#
# Any agent runs in any environment whose spaces it takes. `auto` needs no settings. `linear` can only learn chances
# that rise or fall with temperature and hour, which these do not. `random` is the baseline.

# %%
team = {name: seqdec.agents.make(name, cafe) for name in ("auto", "linear", "random")}
runs = {
    name: seqdec.run(agent, cafe, 1500, seed=0, num_seeds=4, diagnostics=("observation",))
    for name, agent in team.items()
}
results.readable(results.compare(runs))[["reward", "regret", "% of optimum"]]

# %% [markdown]
# Reward and regret are sums over 1,500 guests, averaged over four seeds, with 95% intervals; "% of optimum" is the
# share of what the best recommendations would have earned.

# %%
results.plot_comparison(runs)

# %% [markdown]
# ## What it recommends
#
# The best drink in every context, and what `auto` recommended to the first and the last 500 guests of one seed. Early
# recommendations are mixed, because the agent experiments. Late ones follow the map, with exceptions near its borders,
# where two drinks sell almost equally well.

# %%
celsius, hours = np.meshgrid(np.linspace(-10, 35, 90), np.linspace(8, 20, 60))
best = jax.vmap(lambda context: chances(context, params).argmax())(jnp.stack([celsius.ravel(), hours.ravel()], axis=1))
run = runs["auto"]
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
axes[0].pcolormesh(celsius, hours, best.reshape(celsius.shape), cmap=COLORS, vmin=-0.5, vmax=3.5)
axes[0].set_title("best drink", fontsize=10)
stages = {"steps 1 to 500": slice(500), "steps 1,001 to 1,500": slice(1000, None)}
for axis, (title, rows) in zip(axes[1:], stages.items(), strict=True):
    seen = run.diagnostics["observation"][0, rows]
    shown = axis.scatter(*seen.T, c=run.actions[0, rows], cmap=COLORS, vmin=-0.5, vmax=3.5, s=9)
    axis.set_title(f"auto, {title}", fontsize=10)
for axis in axes:
    axis.set_xlabel("temperature / °C")
axes[0].set_ylabel("hour of the day")
figure.colorbar(shown, ax=axes, ticks=range(4)).set_ticklabels(DRINKS)
plt.show()

# %% [markdown]
# ## An environment of Gymnasium
#
# A class with `reset` and `step` works too. It runs step by step in Python, without compilation of the environment,
# and may call anything: a simulator, a database. Its `info` may hold the regret.


# %%
class Cafe(gymnasium.Env):
    """The same café in NumPy."""

    observation_space, action_space = spaces.Box(low, high), spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.context = self.np_random.uniform(low, high).astype(np.float32)
        return self.context, {}

    def step(self, action):
        chance = np.asarray(chances(self.context, params))
        sold = float(self.np_random.random() < chance[action])
        self.context = self.np_random.uniform(low, high).astype(np.float32)
        return self.context, sold, False, False, {"regret": float(chance.max() - chance[action])}


one = Cafe()
run = seqdec.run(seqdec.agents.linear(one), one, 300, seed=0)
print(f"sold {run.rewards.sum():.0f} drinks to {run.rewards.size} guests")

# %% [markdown]
# ## Where to go next
#
# - [What a belief does not know](03_uncertainty.ipynb): the uncertainty behind these experiments.
# - [Environments](../docs/environments.md): masks for actions that are not always allowed, actions from a Box, change
#   over time, all environments that are included.
# - [Bandits](../docs/bandits.md): the agents, their policies and settings.
