"""Estimates of seqdec.ope beside those of Open Bandit Pipeline, on logs of its generators.

    pip install --no-deps --ignore-requires-python --target FOLDER obp==0.5.7
    python benchmarks/peer_ope.py FOLDER

What that package imports and does not need here (torch, seaborn, ...) is replaced by empty modules.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Annotated, Any

import numpy as np
import pandas as pd
import tyro
from harness import command

from seqdec import ope

Pairs = dict[str, tuple[float, float]]


class Empty(types.ModuleType):
    """A module that has every name."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds empty modules in the place of packages that are not installed."""

    roots = ("torch", "seaborn", "pyieoe")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As of a finder: the roots are here."""
        if name.partition(".")[0] in self.roots:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Empty:
        """A module without content."""
        return Empty(spec.name)

    def exec_module(self, module: Any) -> None:
        """Nothing is to be executed."""


def value(estimator: ope.Estimator, log: Any, target: Any, predicted: Any = None) -> float:
    """The estimate."""
    return estimator.terms(ope.evidence(log, target, predicted, seed=0)).value


def bandits(peer: Any, data: Any, actions: int, reward: str, policy: str, beta: float) -> Pairs:
    """Name -> ours, theirs."""
    made = data.SyntheticBanditDataset(
        n_actions=actions,
        dim_context=5,
        reward_type=reward,
        reward_function=data.logistic_reward_function if reward == "binary" else data.linear_reward_function,
        behavior_policy_function={"linear": data.linear_behavior_policy, "uniform": None}[policy],
        beta=beta,
        random_state=7,
    )
    seen = made.obtain_batch_bandit_feedback(n_rounds=800)
    rng = np.random.default_rng(0)
    target = rng.dirichlet(np.ones(actions), size=800)
    predicted = seen["expected_reward"] + 0.3 * rng.normal(size=(800, actions))
    log = ope.make_log(
        action=seen["action"],
        reward=seen["reward"],
        propensity=seen["pscore"],
        context=seen["context"],
        num_actions=actions,
    )
    given = {"reward": seen["reward"], "action": seen["action"], "action_dist": target[:, :, None]}
    model = {"estimated_rewards_by_reg_model": predicted[:, :, None]}
    known = {**given, "pscore": seen["pscore"]}
    found = {}
    for ours, theirs, needed in (
        (ope.IPS(), peer.InverseProbabilityWeighting(), {}),
        (ope.IPS(max_weight=2), peer.InverseProbabilityWeighting(lambda_=2.0), {}),
        (ope.SNIPS(), peer.SelfNormalizedInverseProbabilityWeighting(), {}),
        (ope.SubGaussianIPS(strength=0.1), peer.SubGaussianInverseProbabilityWeighting(lambda_=0.1), {}),
        (ope.DM(), peer.DirectMethod(), model),
        (ope.DR(), peer.DoublyRobust(), model),
        (ope.DR(shrinkage=3), peer.DoublyRobustWithShrinkage(lambda_=3.0), model),
        (ope.SNDR(), peer.SelfNormalizedDoublyRobust(), model),
        (ope.SwitchDR(threshold=2), peer.SwitchDoublyRobust(lambda_=2.0), model),
        (ope.SubGaussianDR(strength=0.1), peer.SubGaussianDoublyRobust(lambda_=0.1), model),
    ):
        found[ours.name] = value(ours, log, target, predicted), theirs.estimate_policy_value(**known, **needed)
    one = np.eye(actions)[rng.integers(actions, size=800)]
    uniform = log.replace(propensity=np.full(800, 1 / actions))  # replay of theirs is for uniform logging
    theirs = peer.ReplayMethod().estimate_policy_value(**(given | {"action_dist": one[:, :, None]}))
    found["replay"] = value(ope.Replay(), uniform, one), theirs
    return found | loggers(peer, log, target, rng) | embeddings(peer, log, seen, target, rng)


def loggers(peer: Any, log: ope.Log, target: np.ndarray, rng: Any) -> Pairs:
    """Two loggers, the second of which is uniform."""
    name = rng.integers(2, size=len(log.action))
    mixture = (log.propensity + 1 / log.num_actions) / 2
    common = {"reward": log.reward, "action": log.action, "action_dist": target[:, :, None]}
    balanced = peer.MultiLoggersBalancedInverseProbabilityWeighting()
    weighted = peer.MultiLoggersWeightedInverseProbabilityWeighting()
    return {
        "BalancedLoggers": (
            value(ope.BalancedLoggers(mixture=mixture), log, target),
            balanced.estimate_policy_value(**common, pscore_avg=mixture),
        ),
        "WeightedLoggers": (
            value(ope.WeightedLoggers(logger=name), log, target),
            weighted.estimate_policy_value(**common, pscore=log.propensity, stratum_idx=name),
        ),
    }


def embeddings(peer: Any, log: ope.Log, seen: dict, target: np.ndarray, rng: Any) -> Pairs:
    """One embedding of three categories, whose law is known."""
    law = rng.dirichlet(np.ones(3), size=log.num_actions)
    place = (rng.random((len(log.action), 1)) > law[log.action].cumsum(axis=1)).sum(axis=1).clip(max=2)
    logging = seen["pi_b"][:, :, 0]
    given = {"embedding": place, "law": law, "logging": logging}
    common = {
        "context": seen["context"],
        "reward": log.reward,
        "action": log.action,
        "action_embed": place[:, None],
        "pi_b": seen["pi_b"],
        "action_dist": target[:, :, None],
        "p_e_a": law[:, :, None],
    }
    plain = peer.MarginalizedInverseProbabilityWeighting(n_actions=log.num_actions)
    normal = peer.SelfNormalizedMarginalizedInverseProbabilityWeighting(n_actions=log.num_actions)
    return {
        "mips": (value(ope.MIPS(**given), log, target), plain.estimate_policy_value(**common)),
        "mips(normalized=True)": (
            value(ope.MIPS(**given, normalized=True), log, target),
            normal.estimate_policy_value(**common),
        ),
    }


def slates(peer: Any) -> Pairs:
    """Name -> ours, theirs, on slates."""
    rng, count, slots, items = np.random.default_rng(1), 500, 3, 4
    law, other = rng.dirichlet(np.ones(items), size=(2, count, slots))
    action = (rng.random((count, slots, 1)) > law.cumsum(axis=2)).sum(axis=2).clip(max=items - 1)
    reward = rng.binomial(1, 0.3 + 0.1 * action / items)
    own, theirs = (np.take_along_axis(part, action[:, :, None], axis=2)[:, :, 0] for part in (law, other))
    log = ope.make_slate_log(action=action, reward=reward, propensity=own)
    q = rng.normal(size=(count, slots, items))
    flat = {
        "slate_id": np.repeat(np.arange(count), slots),
        "reward": reward.ravel(),
        "position": np.tile(np.arange(slots), count),
    }

    def weights(part: np.ndarray, kind: str) -> np.ndarray:
        if kind == "item_position":
            return part.ravel()
        cascade = part.cumprod(axis=1)
        return (cascade if kind == "cascade" else np.repeat(cascade[:, -1:], slots, axis=1)).ravel()

    found = {}
    for interaction, kind, name in (
        ("standard", "", "StandardIPS"),
        ("independent", "item_position", "IndependentIPS"),
        ("cascade", "cascade", "RewardInteractionIPS"),
    ):
        suffix = f"_{kind}" if kind else ""
        known = {f"pscore{suffix}": weights(own, kind), f"evaluation_policy_pscore{suffix}": weights(theirs, kind)}
        for normalized, prefix in ((False, "Slate"), (True, "SelfNormalizedSlate")):
            ours = ope.SlateIPS(interaction=interaction, normalized=normalized)
            peers = getattr(peer, prefix + name)(len_list=slots)
            found[ours.name] = value(ours, log, other), peers.estimate_policy_value(**flat, **known)
    cascade = peer.SlateCascadeDoublyRobust(len_list=slots, n_unique_action=items).estimate_policy_value(
        **flat,
        action=action.ravel(),
        pscore_cascade=weights(own, "cascade"),
        evaluation_policy_pscore_cascade=weights(theirs, "cascade"),
        q_hat=q.ravel(),
        evaluation_policy_action_dist=other.ravel(),
    )
    return found | {"cascade_dr": (value(ope.CascadeDR(), log, other, q), cascade)}


def numbers(peer: Any) -> Pairs:
    """Name -> ours, theirs, on actions that are numbers."""
    rng, count = np.random.default_rng(2), 500
    action, density = rng.normal(size=count), rng.uniform(0.1, 1, size=count)
    target, q = action + rng.normal(size=count), rng.normal(size=count)
    reward = target + rng.normal(size=count)
    log = ope.make_continuous_log(action=action, reward=reward, density=density)
    known = {
        "reward": reward,
        "action_by_behavior_policy": action,
        "pscore": density,
        "action_by_evaluation_policy": target,
    }
    found = {}
    for kernel in ("gaussian", "epanechnikov", "triangular"):
        plain, normal, robust = (
            getattr(peer, f"Kernelized{name}")(kernel=kernel, bandwidth=0.7)
            for name in ("InverseProbabilityWeighting", "SelfNormalizedInverseProbabilityWeighting", "DoublyRobust")
        )
        for ours, theirs, needed in (
            (ope.KernelIPS(bandwidth=0.7, kernel=kernel), plain, {}),
            (ope.KernelIPS(bandwidth=0.7, kernel=kernel, normalized=True), normal, {}),
            (ope.KernelDR(bandwidth=0.7, kernel=kernel), robust, {"estimated_rewards_by_reg_model": q}),
        ):
            found[ours.name] = value(ours, log, target, q), theirs.estimate_policy_value(**known, **needed)
    return found


def installed(folder: str) -> Any:
    """The package in a folder."""
    sys.meta_path.insert(0, Absent())
    for name in ("torch.utils.data", "torch.nn.functional", "torch.optim"):
        importlib.import_module(name)
    sys.path.insert(0, folder)
    for name in ("obp.dataset", "obp.ope", "obp.policy"):
        importlib.import_module(name)
    return importlib.import_module("obp")


KINDS = (("uniform", 1.0), ("linear", 1.0), ("linear", -1.0))


def main(folder: Annotated[str, tyro.conf.Positional]) -> None:
    """Print the largest relative differences to Open Bandit Pipeline in a folder."""
    obp = installed(folder)
    print(f"Open Bandit Pipeline {obp.__version__}")
    kinds = [(k, r, p, b) for k in (3, 20) for r in ("binary", "continuous") for p, b in KINDS]
    found = [*(bandits(obp.ope, obp.dataset, *kind) for kind in kinds), slates(obp.ope), numbers(obp.ope)]
    apart = [{name: abs(a - b) / max(abs(b), 1e-12) for name, (a, b) in pairs.items()} for pairs in found]
    print(f"largest relative difference over {len(kinds)} kinds of logs, and one of slates and of numbers")
    print(pd.DataFrame(apart).max().map("{:.1e}".format).to_string())


if __name__ == "__main__":
    command(main)
