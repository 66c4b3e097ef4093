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
# # Evaluating a policy from a log
#
# **What you learn:** how to find out whether a log can tell the value of another policy, how to estimate that value
# with several estimators, how to learn a policy from the log, and how to decide.
#
# **Time:** about half a minute on two cores.
#
# A gym contacts members who stopped coming: by call, by letter, by email, or not at all. A rule prefers a channel for
# each member, and every channel keeps a chance of a tenth. Would another rule earn more? The file of a year can tell,
# without a trial. The members are made up, so the answer can be checked at the end.

# %%
# %matplotlib inline
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from seqdec import filters, likelihoods, models, ope
from seqdec.features import Encoder

random = np.random.default_rng(1)
CHANNELS = np.array(["call", "email", "letter", "none"])
COST = np.array([6.0, 0.1, 2.0, 0.0])


def members(count):
    """So many members, with gaps: one in eight without an age, one in five without a remark."""
    remark = random.choice(["moved away", "too expensive", "no time", "injured knee"], count)
    return pd.DataFrame(
        {
            "day": pd.date_range("2024-01-01", periods=count, freq="70min").strftime("%Y-%m-%d %H:%M"),
            "age": np.where(random.random(count) < 0.125, np.nan, random.normal(44, 14, count).round()),
            "plan": random.choice(["basic", "family", "premium"], count, p=[0.6, 0.25, 0.15]),
            "remark": np.where(random.random(count) < 0.2, None, remark),
            "visits": random.poisson(9, count),
        }
    )


def rates(table):
    """The true chances (members, channels) that a member comes back."""
    premium, old = (table["plan"] == "premium").to_numpy(), (table["age"] > 55).to_numpy()
    dear = (table["remark"] == "too expensive").to_numpy()
    base = 0.04 + 0.004 * table["visits"].to_numpy()
    return np.stack([base + 0.3 * premium + 0.05, base + 0.16 * dear, base + 0.14 * old, base - 0.02], axis=1)


# %% [markdown]
# ## The file
#
# A row is a decision: what was known of the member, the channel, the probability with which it was chosen, and the
# profit: 30 for a member who came back, minus the cost of the channel.

# %%
table = members(6000)
rule = np.where(table["visits"] > 10, "call", np.where(table["age"] > 40, "letter", "email"))
chances = 0.6 * (rule[:, None] == CHANNELS) + 0.1
sent = (random.random((len(table), 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=3)
rows = np.arange(len(table))
back = random.random(len(table)) < rates(table)[rows, sent]
table["channel"], table["chance"] = CHANNELS[sent], chances[rows, sent]
table["profit"] = (30.0 * back - COST[sent]).round(2)
table.to_csv("members.csv", index=False)

table = pd.read_csv("members.csv")
table.head()

# %%
table.isna().sum()

# %% [markdown]
# ## From the table to a log
#
# What is learned from rows cannot be judged by them: the last third is put aside. The encoder is fitted to the first
# rows only; it fills gaps and marks them, so a missing age can itself be informative.

# %%
encoder = Encoder.fit(table[:4000], ["age", "plan", "remark", "visits"])
COLUMNS = {"context": encoder, "action": "channel", "reward": "profit", "propensity": "chance", "time": "day"}
learning = ope.Log.from_pandas(table[:4000], **COLUMNS)
judging = ope.Log.from_pandas(table[4000:], **COLUMNS)
print(learning)

# %% [markdown]
# A log that no estimator could use is refused, with the remedy. Here someone logged what the rule prefers in the place
# of the probability:

# %%
try:
    ope.Log.from_pandas(table.assign(chance=(rule == table["channel"]).astype(float)), **COLUMNS)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Can this log tell?
#
# Two proposals. One calls all premium members and emails the others; the other calls everyone. A row counts with the
# probability of its channel under the proposal over that of the log. The more these weights differ, the fewer of the
# proposal's own rows the log is worth.


# %%
def always(log, name):
    """The policy that plays one channel."""
    return np.tile(name == CHANNELS, (len(log.action), 1)).astype(float)


premium = (table["plan"] == "premium").to_numpy()
proposals = {
    "call premium": np.where(premium[4000:, None], always(judging, "call"), always(judging, "email")),
    "call all": always(judging, "call"),
}
for name, target in proposals.items():
    seen = ope.overlap(judging, target)
    print(f"{name}: {seen.verdict}", *seen.warnings, sep="\n  ")
weights = ope.check_target(judging, proposals["call premium"]).weights
ope.weights_figure(weights, 'Weights of the rows for "call premium"')

# %% [markdown]
# ## A reward model
#
# It is not needed, but lowers the variance. Each row is predicted by a model that was fitted to the other rows, so
# models are compared by rows that they have not seen. Any model of scikit-learn serves, and any filter.

# %%
predicted = ope.predict_rewards(judging, seed=0)
network = models.network(models.MLP(4, ()), jnp.zeros(judging.context.shape[1]))
flt = filters.ekf(network, likelihoods.gaussian(float(judging.reward.var())), initial_std=1.0)
by_filter = ope.predict_rewards(judging, seed=0, model=filters.learner(flt, network.init))
for name, one in (
    ("scikit-learn", predicted),
    ("EKF", by_filter),
    ("mean", np.full_like(predicted, judging.reward.mean())),
):
    print(f"{name}: log likelihood of a held-out row {ope.held_out_likelihood(judging, one):.3f}")

# %% [markdown]
# ## What would "call premium" earn?
#
# Estimators differ in variance and in bias; "auto" chooses one by the log. If all agree, none of them matters much.

# %%
logged = float(judging.reward.mean()), float(judging.reward.std() / np.sqrt(len(judging.reward)))
estimates = ope.evaluate(
    judging, proposals["call premium"], predicted, seed=0, estimators="auto, ips, snips, dm, dr, sndr, switch_dr"
)
estimates.round(3)

# %%
ope.estimates_figure(estimates, logged, None, 'Profit per member of "call premium", from 2,000 rows')

# %% [markdown]
# ## A policy from the log
#
# `learn` maximizes the doubly robust estimate over the softmax of a network, on the first 4,000 rows. A twentieth stays
# random: the log of this policy can then judge the next one.

# %%
agent = ope.learn(learning, seed=0, objective="dr", epsilon=0.05)
played = ope.target_of(agent, judging, seed=0)
pd.DataFrame(played, columns=CHANNELS).groupby(table["plan"][4000:].to_numpy()).mean().round(2)

# %% [markdown]
# ## The decision
#
# All candidates are judged by the last 2,000 rows, and the intervals hold for all of them together. `select` takes the
# one with the largest lower end, which is the least that it earns.

# %%
candidates = {**proposals, "email all": always(judging, "email"), "learned": played}
found = ope.select(judging, candidates, predicted=predicted, seed=0)
low, value, high = found.table.loc[found.chosen, ["low", "value", "high"]]
better = low > logged[0] + 1.96 * logged[1]
print(
    f'"{found.chosen}" earns {value:.2f} per member ({low:.2f} to {high:.2f}), today\'s rule {logged[0]:.2f} '
    f"(standard error {logged[1]:.2f}): {'deploy it' if better else 'log more rows before you decide'}."
)
found.table[["value", "low", "high"]].round(2)

# %% [markdown]
# The members are made up, so the true values of the same rows are known:

# %%
truth = 30 * rates(table[4000:]) - COST
true = pd.Series({name: float((policy * truth).sum(axis=1).mean()) for name, policy in candidates.items()})
shown = found.table.assign(truth=true)[::-1]
figure, axis = plt.subplots(figsize=(8.2, 3.2), layout="constrained")
axis.errorbar(
    shown["value"],
    shown.index,
    xerr=np.abs(shown[["low", "high"]].to_numpy().T - shown["value"].to_numpy()),
    fmt="o",
    capsize=3,
)
axis.plot(shown["truth"], shown.index, "k|", markersize=18, label="truth")
axis.axvline(logged[0], color="0.5", linestyle="--", label="today's rule, in the log")
axis.set(xlabel="profit per member, 95% intervals for all candidates together", title="Estimates and truth")
axis.margins(y=0.15)
axis.legend(loc="upper left")
plt.show()

# %% [markdown]
# ## Where to go next
#
# - [From a table to a service](06_table_to_service.ipynb): the learned policy is an agent, which `seqdec.run` plays and
#   an `OnlineAgent` serves, with exact propensities for the next log.
# - [A black-box function](08_black_box_function.ipynb): the best of infinitely many actions, in few trials.
# - [Off-policy evaluation](../docs/off-policy-evaluation.md): the estimators, their intervals, when each fails.
#
# On the command line, the same file is judged by
#
#     seqdec ope members.csv --context age,plan,remark,visits --action channel --reward profit --propensity chance \
#         --time day --estimators "auto, snips, dr"
