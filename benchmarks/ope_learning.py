"""Policies learned from bandit feedback, judged on held-out rows with intervals.

    python benchmarks/ope_learning.py [--seeds 10] [--peer FOLDER]
    python benchmarks/ope_learning.py --campaign all [--peer FOLDER]      all, men or women

Digits: a classifier of 100 labeled digits logs 1,697 decisions: its class with probability 0.55, each other with 0.05.
Policies are learned from the first 1,000 rows; the others judge them, by SNIPS with a 95% interval and by their labels.

Open Bandit: the uniform log of a campaign, in $SEQDEC_DATA. Rows of a fold are played by the policy that was learned
from the other four folds; all rows together judge it. Clicks are too rare in 10,000 rows to tell policies apart.

--peer adds the learner of Open Bandit Pipeline with its defaults, which is installed in FOLDER as for peer_ope.py.
"""

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
from harness import command
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from seqdec import data, ope
from seqdec.commands.logs import as_log
from seqdec.data import load_digits

TRAIN = 1000
FOLDS = 5
Policy = Callable[[ope.Log, ope.Log], np.ndarray]
"""(log, rows to judge by) -> target"""


def draw(seed: int) -> tuple[ope.Log, np.ndarray, np.ndarray]:
    """The log, the labels of its rows and the actions that the logging policy prefers."""
    images, labels = load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    x, labels = images[order] / 16.0, labels[order]
    greedy = LogisticRegression(max_iter=500).fit(x[:100], labels[:100]).predict(x[100:])
    x, labels = x[100:], labels[100:]
    law = 0.5 * np.eye(10)[greedy] + 0.05
    action = (rng.random((len(x), 1)) > law.cumsum(axis=1)).sum(axis=1).clip(max=9)
    propensity = law[np.arange(len(x)), action]
    reward = (action == labels) * 1.0
    return ope.make_log(action=action, reward=reward, propensity=propensity, context=x, num_actions=10), labels, greedy


def by_hand(log: ope.Log, judge: ope.Log) -> np.ndarray:
    """IPW learning by scikit-learn alone: weighted logistic regression on the contexts as they are."""
    model = LogisticRegression(max_iter=1000, random_state=0)
    model.fit(log.context, log.action, sample_weight=log.reward / log.propensity)
    return np.eye(log.num_actions)[model.predict(judge.context)]


def learned(make: Callable[[ope.Log], Any]) -> Policy:
    """Of what `make` learns from the log."""
    return lambda log, judge: ope.target_of(make(log), judge, seed=0)


def of_peer(folder: str) -> Policy:
    """IPW learning by Open Bandit Pipeline."""
    from peer_ope import installed

    package = installed(folder)

    def policy(log: ope.Log, judge: ope.Log) -> np.ndarray:
        model = package.policy.IPWLearner(n_actions=log.num_actions)
        model.fit(context=log.context, action=log.action, reward=log.reward, pscore=log.propensity)
        return model.predict(context=judge.context)[:, :, 0]

    return policy


POLICIES: dict[str, Policy] = {
    'learn(objective="ips")': learned(lambda log: ope.learn(log, seed=0, objective="ips")),
    'learn(objective="dr")': learned(lambda log: ope.learn(log, seed=0)),
    'learn(objective="snips")': learned(lambda log: ope.learn(log, seed=0, objective="snips")),
    'learn(objective="dm")': learned(lambda log: ope.learn(log, seed=0, objective="dm")),
    'learn(objective="ips", pessimism=3)': learned(lambda log: ope.learn(log, seed=0, objective="ips", pessimism=3)),
    'learn(objective="ips", regularization=0.1)': learned(
        lambda log: ope.learn(log, seed=0, objective="ips", regularization=0.1)
    ),
    "learn_by_classification": learned(ope.learn_by_classification),
    "learn_by_classification, random forest": learned(
        lambda log: ope.learn_by_classification(log, RandomForestClassifier(random_state=0))
    ),
    "IPW by scikit-learn": by_hand,
}


def digits(seeds: int, policies: dict[str, Policy]) -> pd.DataFrame:
    """Means over seeds."""
    found = []
    for seed in range(seeds):
        log, labels, greedy = draw(seed)
        rows = np.arange(len(labels))
        train, judge, truth = log[rows < TRAIN], log[rows >= TRAIN], labels[TRAIN:]
        played = {"logging policy, greedy": lambda *_, greedy=greedy: np.eye(10)[greedy[TRAIN:]], **policies}
        for name, policy in played.items():
            start = time.perf_counter()
            target = policy(train, judge)
            seconds = time.perf_counter() - start
            row = ope.evaluate(judge, target, seed=0, estimators="snips").loc["snips"]
            value = target[np.arange(len(truth)), truth].mean()
            inside = float(row["low"] <= value <= row["high"])
            found.append((name, value, row["value"], row["low"], row["high"], inside, seconds))
    columns = ["policy", "by labels", "SNIPS", "low", "high", "coverage", "seconds"]
    table = pd.DataFrame(found, columns=columns).groupby("policy", sort=False)
    means = table.mean()
    means.insert(1, "standard error", table["by labels"].sem())
    return means


def open_bandit(campaign: str, policies: dict[str, Policy]) -> pd.DataFrame:
    """Click rates; contexts are place and user, and items have no features but their number."""
    log = as_log(data.load_open_bandit("random", campaign=campaign)).replace(action_features=None)
    member = np.random.default_rng(0).permutation(np.arange(len(log.action)) % FOLDS)
    played: dict[str, Policy] = {"uniform": lambda log, judge: judge.mask / judge.mask.sum(axis=1, keepdims=True)}
    found = {}
    for name, policy in (played | policies).items():
        target, start = np.zeros(log.mask.shape), time.perf_counter()
        for fold in range(FOLDS):
            target[member == fold] = policy(log[member != fold], log[member == fold])
        seconds = (time.perf_counter() - start) / FOLDS
        row = ope.evaluate(log, target, seed=0, estimators="snips").loc["snips"]
        rows = ope.overlap(log, target).effective_sample_size
        found[name] = (row["value"], row["low"], row["high"], rows, seconds)
    columns = ["SNIPS", "low", "high", "effective rows", "seconds"]
    return pd.DataFrame.from_dict(found, orient="index", columns=columns)


def main(seeds: int = 10, campaign: Literal["all", "men", "women"] | None = None, peer: str | None = None) -> None:
    """Print the table."""
    policies = dict(POLICIES)
    if peer is not None:
        policies["IPW by Open Bandit Pipeline"] = of_peer(peer)
    if campaign is not None:
        print(open_bandit(campaign, policies).round(4).to_string())
    else:
        print(digits(seeds, policies).round(3).to_string())


if __name__ == "__main__":
    command(main)
