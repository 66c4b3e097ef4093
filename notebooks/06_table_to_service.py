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
# # From a table to a service
#
# **What you learn:** how to turn a table with mixed columns into a log, estimate what another policy would have earned,
# start a service from the log, accept rewards that come late or never, add an arm, and restart.
#
# **Time:** about half a minute on two cores; ten seconds of it are waiting.
#
# A team has a table of past decisions with mixed columns. It wants to know whether another policy would have earned
# more, and then an agent that decides for each visitor, learns from clicks that come late or never, and gets a new arm
# while it runs. The visitors are made up, so every answer can be checked.

# %%
# %matplotlib inline
import time
import warnings

import numpy as np
import pandas as pd
from gymnasium import spaces

import seqdec
from seqdec import ope
from seqdec.commands.monitor import monitor_figure
from seqdec.core import Spaces
from seqdec.features import Encoder, Text
from seqdec.service.summary import summary

random = np.random.default_rng(0)
OFFERS = np.array(["discount", "news", "nothing", "voucher"])


def visitors(count, start):
    """So many visitors, one in ten without an age."""
    words = ["red", "cheap", "shoes", "hats", "summer"]
    return pd.DataFrame(
        {
            "when": pd.date_range(start, periods=count, freq="13min").astype(str),
            "age": np.where(random.random(count) < 0.1, np.nan, random.normal(40, 12, count).round()),
            "member": random.random(count) < 0.3,
            "city": random.choice(["Rome", "Oslo", "Lyon"], count),
            "plan": random.choice(["free", "basic", "pro"], count),
            "query": [" ".join(random.choice(words, 3)) for _ in range(count)],
        }
    )


def rates(table):
    """The true click rates (visitors, offers)."""
    free, pro = table["plan"] == "free", table["plan"] == "pro"
    nothing = np.full(len(table), 0.05)
    return np.stack([0.1 + 0.2 * free, 0.1 + 0.3 * table["member"], nothing, 0.05 + 0.4 * pro], axis=1)


# %% [markdown]
# ## The table
#
# 5,000 visitors, three offers, and the probability with which each was made. Missing ages stay missing.

# %%
table = visitors(5000, "2024-03-01")
chances = np.where(table[["member"]], [0.2, 0.6, 0.2], [0.6, 0.2, 0.2])
made = (random.random((len(table), 1)) > chances.cumsum(axis=1)).sum(axis=1)
table["offer"], table["chance"] = OFFERS[made], chances[np.arange(len(table)), made]
table["clicked"] = random.random(len(table)) < rates(table)[np.arange(len(table)), made]
table.to_csv("bandit.csv", index=False)
table = pd.read_csv("bandit.csv")
table.head()

# %% [markdown]
# ## Features
#
# The encoder chooses a kind for each column from its values. A kind that you know better is named.

# %%
columns = ["when", "age", "member", "city", "plan", "query"]
encoder = Encoder.fit(table, columns, kinds={"query": Text(16)})
print(encoder.names)
log = ope.Log.from_pandas(table, context=encoder, action="offer", reward="clicked", propensity="chance", time="when")
print(log)

# %% [markdown]
# ## Would another policy have earned more?
#
# News for members, a discount for everybody else: its value is estimated from rows that another policy made.

# %%
target = np.eye(3)[np.where(table["member"], 1, 0)]
value = (target * rates(table)[:, :3]).sum(1).mean()
print(f"mean reward of the log {log.reward.mean():.3f}, true value of the target {value:.3f}")
ope.evaluate(log, target, seed=0).round(3)

# %% [markdown]
# ## A service that starts with what the table tells
#
# Requests are dicts, as they come in JSON. Only clicks are reported, so a decision of which nobody says anything within
# `reward_after` seconds has the reward 0; here two seconds stand for a day. The log keeps the encoder, too.

# %%
site = Spaces(encoder.space, spaces.Discrete(3))
options = {"seed": 0, "folder": "shop", "encoder": encoder, "reward_default": 0.0, "reward_after": 2.0}
service = seqdec.OnlineAgent("linear", site, **options)
service.warm_start(log)


def day(service, start, count=600):
    """Visitors of a day, of whose clicks one in five is never reported and the others late, in any order."""
    people = visitors(count, start)
    rows, truth = people.astype(object).where(people.notna(), None).to_dict("records"), rates(people)
    clicks, earned = [], []
    for row, chance in zip(rows, truth, strict=True):
        decision = service.decide(row)
        earned.append(chance[decision.action])
        if random.random() < 0.8 * chance[decision.action]:
            clicks.append((decision.token, 1.0))
        if len(clicks) > 20:
            service.learn(*clicks.pop(random.integers(len(clicks))))
    service.learn_many(clicks)
    time.sleep(options["reward_after"])  # the day is over
    return np.mean(earned), truth[:, : len(service.arms)].max(1).mean()


print("click rate {:.3f}, of the best offers {:.3f}".format(*day(service, "2024-04-16")))

# %% [markdown]
# ## A new arm
#
# The voucher gets the next number. Nothing is learned again, and no request waits.

# %%
voucher = service.add_arm()
for date in ("2024-04-22", "2024-04-28", "2024-05-04"):
    print(date, "click rate {:.3f}, of the best offers {:.3f}".format(*day(service, date)))
print(service.counts)

# %% [markdown]
# ## Why?
#
# The mean, the deviation and the probability of each offer for one visitor, and what moves the means: columns of the
# table, against the mean over the latest visitors.

# %%
visitor = {"when": "2024-05-08T18:30", "member": False, "city": "Rome", "plan": "pro", "query": "red hats summer"}
service.explain(visitor)

# %% [markdown]
# ## A restart, and a look at the log
#
# The process may end at any time. What starts again goes on with the same belief, and with the four arms.

# %%
service.close()
service = seqdec.OnlineAgent("linear", site, **options)
history = seqdec.service.read_history("shop")
print(service.arms, history["source"].value_counts().to_dict())
monitor_figure(history, summary(history), "Shop")

# %% [markdown]
# ## What the log of the service tells
#
# It is a log like the first, with exact propensities. Vouchers for the plan "pro", else as before:

# %%
own = service.log()
pro, member = (own.context[:, encoder.names.index(name)] > 0 for name in ("plan=pro", "member"))
print(f"mean reward of the log {own.reward.mean():.3f}")
pro &= own.mask[:, voucher]  # there was no voucher before
with warnings.catch_warnings(record=True) as caught:
    estimates = ope.evaluate(own, np.eye(4)[np.where(pro, voucher, np.where(member, 1, 0))], seed=0)
print(*(warning.message for warning in caught))
estimates.round(3)

# %% [markdown]
# Clicks that are not reported are missing in every value here: the truth is a quarter above. If there is a warning, it
# is because the service hardly plays anything but its favorites in the end: its log tells less about other policies
# than the first.

# %%
service.close()

# %% [markdown]
# ## Where to go next
#
# - [Evaluating a policy from a log](07_off_policy_evaluation.ipynb): diagnostics, estimators, a learned policy.
# - [Services](../docs/services.md): durability, threads, start-up time. `seqdec monitor shop` makes the figure above
#   and a page on the command line; [a server](../docs/serve.md) answers requests over HTTP.
# - [Tutorial](../docs/tutorial-service.md): the same way with an existing table, step by step.
# - [Features](../docs/features.md): the kinds of columns.
