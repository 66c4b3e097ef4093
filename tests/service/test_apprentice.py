"""An agent that imitates another rule learns, and logs what it would have played."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.service import read_history
from seqdec.service.logs import opened
from tests.service.services import X, service, small

ARMS = ["a", "b", "c"]


def shadows(one: seqdec.OnlineAgent) -> list[Any]:
    with opened(one._store, one._transact) as database:  # pyright: ignore[reportPrivateUsage]
        found = database.rows("decisions", "ORDER BY number")
    return [None if row[9] is None else np.frombuffer(row[9], "<f4") for row in found]


def test_it_plays_what_is_taken_and_logs_what_it_would_have_played(tmp_path: Path) -> None:
    taken, chances = [ARMS[n % 2] for n in range(40)], [0.5 + n / 100 for n in range(40)]
    with service(tmp_path, arms=ARMS) as one:
        own = [one.explain(X[0]).probability]
        made = [one.decide(X[0], taken="c", key="ann")]
        one.learn(made[0].token, 1e3)
        own.append(one.explain(X[0], ["a", "c"]).probability)
        made.append(one.decide(X[0], ["a", "c"], taken="a", chance=0.25, active=False))
        made += one.decide_many(X[:40], taken=taken, chances=chances)
        assert one.decide(X[0], taken="c", key="ann") == made[0]  # a retry
        assert [d.action for d in made] == ["c", "a", *taken]
        assert [d.propensity for d in made] == [1.0, 0.25, *chances] and {d.probabilities for d in made} == {None}
        for law, before in zip(shadows(one), own, strict=False):
            np.testing.assert_allclose(law[: len(before)] if len(before) == 3 else law[[0, 2]], before, atol=1e-6)
        assert not np.allclose(own[0], shadows(one)[2])  # it has learned
        one.decide(X[0])  # by itself
        assert shadows(one)[-1] is None and one.log().logging is None
        assert read_history(tmp_path)["action"].tolist()[:-1] == ["c", "a", *taken]
        one.forget(["ann"])
        assert shadows(one)[0] is None


def test_portions_and_keys_keep_their_arms() -> None:
    with service(arms=ARMS) as one:
        taken = [ARMS[n % 3] for n in range(600)]
        made = one.decide_many(np.tile(X, (8, 1))[:600], taken=taken, keys=[f"k{n}" for n in range(600)])
        assert [d.action for d in made] == taken
        known = one.decide_many(X[:3], taken=["b", "a", "c"], keys=["k1", "new", "k2"])
        assert [d.token for d in known[::2]] == [made[1].token, made[2].token] and known[1].action == "a"


def test_without_probabilities_its_choice_is_the_shadow() -> None:
    def thompson(site: Any) -> Any:
        agent = small(site)
        return agent._replace(act=lambda *given: agent.act(*given)._replace(probabilities=None))

    with service(make=thompson, arms=ARMS) as one, service(arms=ARMS) as other:
        one.decide_many(X, taken=["b"] * 80)
        own = [ARMS[int(law.argmax())] for law in shadows(one) if sorted(law) == [0, 0, 1]]
        assert own == [decision.action for decision in other.decide_many(X)] and len(set(own)) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"taken": "d"}, r"one of \['a', 'b', 'c'\]; got 'd'"),
        ({"taken": True}, "taken must be an arm"),
        ({"taken": "b", "mask": ["a", "c"]}, r"one of \['a', 'c'\]; got 'b'"),
        ({"taken": "a", "chance": 0.0}, "chance must be a probability"),
        ({"taken": "a", "chance": 1.5}, "chance must be a probability"),
        ({"taken": "a", "chance": float("nan")}, "chance must be a probability"),
        ({"taken": "a", "key": "old"}, "the key 'old' is of a decision for 'b', and 'a' is taken now"),
    ],
)
def test_what_cannot_have_been_taken_is_refused(options: dict[str, Any], says: str) -> None:
    with service(arms=ARMS) as one:
        one.decide(X[0], taken="b", key="old")
        with pytest.raises(ValueError, match=says):
            one.decide(X[0], **options)
        for arms, chances in ((["a"], None), (["a", "b"], [1.0])):
            with pytest.raises(ValueError, match="each of 2"):
                one.decide_many(X[:2], taken=arms, chances=chances)
        assert one.counts["decisions"] == 1
        one.learn(one.decide(X[0]).token, 1.0)
        with pytest.raises(ValueError, match="no decision with a reward in which the agent imitated"):
            one.comparison(seed=0)


WORTH = np.array([0.2, 0.5, 0.8])


@pytest.mark.parametrize(
    ("rule", "explored", "decision"),
    [(0, 0.2, "better"), (2, 0.2, "worse"), (0, 0.0, "cannot decide"), (None, 0.2, "no difference shown")],
)
def test_its_comparison_says_whether_it_would_beat_the_rule(rule: int | None, explored: float, decision: str) -> None:
    """Of an agent that plays a random arm at times, with a rule that always plays one arm, or as it does."""
    rng, rows = np.random.default_rng(0), 1500
    x = np.tile([1.0, 0.5], (rows, 1))
    with service(arms=ARMS) as one:
        for start in range(0, rows, 250):
            best = rule if rule is not None else int(np.argmax(one.explain(x[0]).mean))
            law = (1 - explored) * (np.arange(3) == best) + explored / 3 if rule is not None else None
            law = np.array(one.explain(x[0]).probability) if law is None else law
            arm = rng.choice(3, size=250, p=law / law.sum())
            made = one.decide_many(x[:250], taken=[ARMS[a] for a in arm], chances=law[arm] / law.sum())
            rewards = (rng.random(250) < WORTH[arm]).astype(float)
            one.learn_many([(d.token, r) for d, r in zip(made, rewards.tolist(), strict=True)])
            assert [d.action for d in made] == [ARMS[a] for a in arm] and start >= 0
        found = one.comparison(seed=0)
        assert found.decision == decision, found
        assert ("In 100% of the decisions the rule could play nothing else" in found.verdict) is (not explored)
        assert len(one.comparison(seed=0, latest=300).windows) and one.comparison(seed=0).verdict == found.verdict


def test_its_verdict_is_right_about_simulated_services() -> None:
    import apprentice  # pyright: ignore[reportMissingImports] (of benchmarks)

    for name, decisions in (
        ("worse than uniform", {"better"}),
        ("best arm of each user", {"cannot decide", "no difference shown"}),
    ):
        run = apprentice.run(apprentice.SERVICES[name], "linear", 0, shadow=3000, alone=500)
        assert run.others == 0 and run.is_right and run.holds and run.decision in decisions, run
