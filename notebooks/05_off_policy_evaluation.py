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
# # What would another policy have earned?
#
# A log says what one policy did, how likely it was to do it, and what came of it. Off-policy evaluation asks it about
# another policy, without playing that policy. Here both are known, so every answer can be checked.

# %%
# %matplotlib inline
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import seqdec
from seqdec import filters, likelihoods, models, ope

# %% [markdown]
# ## A log
#
# Any run leaves one, if it keeps what the agent saw. Time, action, reward and propensity of each decision are columns,
# and so are contexts and masks. Logs from elsewhere are read with `ope.Log.from_pandas` or `ope.Log.load`, which refuse
# what no estimator could bear: a propensity of 0, a reward that is not known, rows out of order.

# %%
env = seqdec.envs.linear(noise_std=0.3)  # five arms, reward weights[arm] . context + noise
logger = seqdec.agents.ekf(env, model=models.MLP(5, ()), policy=seqdec.policies.epsilon_greedy(0.6))
run = seqdec.run(logger, env, 2000, seed=0, diagnostics=("observation",))
log = run.log(0, num_actions=5)
log.to_pandas().head()

# %% [markdown]
# ## A target policy, and its true value
#
# The target plays the best arm with probability 0.9, else any. Its value is an expectation over contexts, which a large
# sample of them gives.

# %%
weights = np.asarray(env.params.weights)


def target_of(context):
    """Probabilities (..., 5) of the arms for contexts (..., 2)."""
    best = np.eye(5)[(context @ weights.T).argmax(1)]
    return 0.9 * best + 0.1 / 5


angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 100_000)
contexts = np.stack([np.cos(angles), np.sin(angles)], axis=1)
truth = float((target_of(contexts) * (contexts @ weights.T)).sum(1).mean())
print(f"true value {truth:.4f}, mean reward of the log {log.reward.mean():.4f}")

# %% [markdown]
# ## A reward model that does not grade itself
#
# Any filter serves as the model of the direct method. `prequential` asks it about each row before it learns from it;
# `cross_fit` asks it about rows that it never sees.

# %%
network = models.network(models.MLP(5, ()), jnp.zeros(2))
flt = filters.ekf(network, likelihoods.gaussian(0.1))
params = network.init(jax.random.key(0))
predicted = ope.cross_fit(flt, params, log, ope.expected_rewards(flt), seed=0)
target = target_of(log.context)
table = ope.evaluate(log, target, predicted, seed=0)
table.assign(truth=truth)

# %%
ope.estimates_figure(table, (float(log.reward.mean()), 0.02), (truth, 0.0), "Value of the target policy")

# %% [markdown]
# Doubly robust is the most exact of the unbiased ones: its error is that of the model's residuals, not of the rewards.
# The interval of the direct method leaves out the error of the model itself.
#
# ## Can the log tell at all?
#
# The effective sample size is how many rows of the target's own log would be as exact. A policy that plays what the log
# hardly ever does leaves none, and `overlap` says so.

# %%
never = np.tile(np.eye(5)[0], (len(log.action), 1))
rare = log._replace(propensity=np.where(log.action == 0, 0.001, log.propensity))
for name, one, policy in (("target", log, target), ("one arm, wrong propensities", rare, never)):
    seen = ope.overlap(one, policy)
    print(f"{name}: {seen.rows} rows are worth {seen.effective_sample_size:.0f}", *seen.warnings, sep="\n  ")

# %% [markdown]
# ## A policy learnt from the log, valued on the log
#
# The same passes answer with action probabilities: of the policy that would act on the belief of the moment. Policy and
# model of a row then both come from rows without it, and its value is estimated without bias.


# %%
def greedy(key, belief, x, mask):
    """Expected rewards of the arms, and the probabilities with which a greedy policy would play them."""
    question = filters.posterior(flt, belief)
    chances = seqdec.policies.greedy().probabilities(key, question, x, mask)
    return flt.response(flt.mean(belief), x), chances


predicted, learnt = ope.cross_fit(flt, params, log, greedy, seed=0)
best = float((contexts @ weights.T).max(1).mean())
pd.DataFrame(ope.evaluate(log, learnt, predicted, seed=0)).assign(best_possible=best)

# %% [markdown]
# On the command line, `seqdec run digits --logs` writes such logs and `seqdec ope LOG --policy greedy` values a policy
# on one; `seqdec ope open-bandit --policy bts` asks the uniform log of the Open Bandit Dataset about Thompson sampling.
