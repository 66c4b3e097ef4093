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
# # A recommender's log
#
# **What you learn:** how to replay a log with different agents, how to describe candidates by embedding tables and
# numbers, and how to compare agents day by day.
#
# **Time:** about half a minute on two cores, most of it compilation.
#
# A log in which the reward of every candidate is known can be replayed by any agent: a step offers a user's next ten
# videos, the agent chooses one, and the log says for how long it was watched. KuaiRec is such a log. Its files are not
# needed here: without them the log is **synthetic**, with the same schema, and every table and figure says so.

# %%
# %matplotlib inline
import tempfile

import pandas as pd

import seqdec
from reproduction import kuairec
from seqdec import agents, data, envs, models, results

# %% [markdown]
# ## The files and the log
#
# `write_kuairec` writes CSV files as they are published, at any size; `load_kuairec` reads either. What cannot be used
# is counted, what is wrong is refused with file, line, column and a remedy.

# %%
with tempfile.TemporaryDirectory() as folder:
    data.write_kuairec(folder, users=60, videos=300, seed=0)
    print(pd.read_csv(f"{folder}/small_matrix.csv").head(3).to_string())
    log = data.load_kuairec(folder, cache=False)
log = log._replace(name="kuairec SYNTHETIC")
print(log.name, log.rewards.shape, dict(log.dropped))

# %% [markdown]
# A block is a user's next ten videos with the reward of each, log(1 + watch ratio), and the features of the day before.

# %%
print("user", log.ids["user"][0], "videos", log.ids["video"][0], "day", log.days[0])
print(log.unit.name, log.unit.from_reward(log.rewards[0]).round(2))

# %% [markdown]
# ## Agents
#
# The observation is a dict with a row for each candidate. Whole numbers are rows of embedding tables, so a preset knows
# what to do with them. Each row has a belief of its own: a step costs what the ten rows on offer cost, however many
# videos there are.

# %%
env = envs.recommender_log(log)
print({name: space.shape for name, space in env.observation_space.spaces.items()})
score = agents.scorer(env, models.Score(hidden=(10,), intercepts=True, product=True), width=4, std=0.1)
team = {
    "hilofi": agents.hilofi(
        env,
        model=score,
        rank=10,
        policy="greedy",
        noise_variance=0.05,
        process_noise_hidden=0.0,
        process_noise_last=0.0,
        initial_std_table=(0.12, 0.3, 0.3, 0.3),
    ),
    "linear": agents.linear(env, policy="greedy", noise_variance=0.03, initial_std=0.1, initial_std_table=0.1),
    "popularity": agents.popularity(env, prior_plays=3.0),
    "random": agents.random(env),
}
runs = {name: seqdec.run(agent, env, len(log.rewards), seed=0, num_seeds=5) for name, agent in team.items()}

# %% [markdown]
# ## Day by day, in watch ratio

# %%
watched = {name: kuairec.in_watch_ratios(run) for name, run in runs.items()}
days = pd.DataFrame({"period": pd.to_datetime(log.days.astype(str))})
table = results.compare(watched)
print(log.name)
print((table["reward"] / table["steps"]).round(3).to_string())
kuairec.daily_figure(kuairec.daily(watched, days), table, log.name)

# %% [markdown]
# Lines and bars are means over five seeds with 95% intervals. 1,750 steps are too few to learn anybody's taste, so this
# does not rank the agents.
#
# ## Where to go next
#
# - [From a table to a service](06_table_to_service.ipynb): a log without the rewards of actions that were not taken.
# - [Recommender logs](../docs/recommender.md): the files, the features, results. `seqdec run kuairec` does the same
#   with 20,000 steps and five seeds, `--data DIR` with the official files, and `--parity` with the settings and the
#   order of the paper.
# - [Catalogs](../docs/catalogs.md): a service whose items come and go.
