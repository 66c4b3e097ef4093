"""What an agent is: another network, policy or function is noticed, and nothing else."""

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from gymnasium import spaces

import seqdec
from seqdec.core import Spaces
from seqdec.service.identity import digest
from seqdec.service.snapshots import SNAPSHOT
from tests.service.services import X, service

SITE = Spaces(spaces.Box(-5, 5, (2,)), spaces.Discrete(2))
GAIN = 1.0


class Scaled:
    """An activation with a setting."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return self.by * x


def scaled(by: float) -> Callable[[Any], Any]:
    return lambda x: by * x


def slope(x: Any, by: float = 2.0) -> Any:
    return by * x


def network(by: float) -> nn.Module:
    class Net(nn.Module):
        out: int = 2

        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(self.out)(by * x)

    return Net()


DIFFERENT: dict[str, tuple[Callable[[], Any], ...]] = {
    "function": (lambda: jax.nn.elu, lambda: jax.nn.relu, lambda: jnp.tanh),
    "lambda": (lambda: lambda x: x + 1, lambda: lambda x: x + 2),
    "closure": (lambda: scaled(1.0), lambda: scaled(2.0)),
    "partial": (lambda: functools.partial(jax.nn.elu, alpha=1.0), lambda: functools.partial(jax.nn.elu, alpha=2.0)),
    "object": (lambda: Scaled(1.0), lambda: Scaled(2.0)),
    "method": (lambda: Scaled(1.0).__call__, lambda: Scaled(2.0).__call__),
    "module": (lambda: network(1.0), lambda: network(2.0)),
    "width": (lambda: seqdec.models.MLP(2, (3,)), lambda: seqdec.models.MLP(2, (4,))),
    "shape": (lambda: np.arange(6).reshape(2, 3), lambda: np.arange(6).reshape(3, 2)),
    "activation of an agent": tuple(
        lambda f=f: seqdec.agents.hilofi(SITE, model=seqdec.models.MLP(2, (3,), activation=f), rank=2)
        for f in (jax.nn.elu, scaled(1.0), scaled(2.0))
    ),
}


def test_another_configuration_has_another_digest() -> None:
    for name, makes in DIFFERENT.items():
        assert len({digest(make()) for make in makes}) == len(makes), name
        assert digest(makes[0]()) == digest(makes[0]()), name


def test_a_global_or_a_default_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def gained(x: Any) -> Any:
        return GAIN * x

    before = digest(gained), digest(slope)
    monkeypatch.setattr(f"{__name__}.GAIN", 2.0)
    monkeypatch.setattr(slope, "__defaults__", (3.0,))
    assert digest(gained) != before[0] and digest(slope) != before[1]


def test_use_changes_no_digest() -> None:
    """Spaces and others keep what they have computed; a shared object is as two equal ones."""
    site = Spaces(spaces.Dict({"x": spaces.Box(-1, 1, (2, 3))}), spaces.Discrete(2, seed=1))
    before = digest(site)
    assert repr(site) and site.action_space.sample() in site.action_space
    assert digest(site) == before
    one, other = np.arange(3.0), np.arange(3.0)
    assert digest([one, one]) == digest([one, other]) != digest([one, one.astype(np.float32)])
    assert digest({1: {"a", "b", "c"}}) == digest({1: {"c", "b", "a"}})


def test_a_cycle_has_a_digest() -> None:
    def recursive(x: Any) -> Any:
        return recursive(x - by) if x else 0

    by = 1
    assert digest(recursive) == digest(recursive)


REMOTE = """
import sys
sys.path[:0] = [sys.argv[1]]
from tests.service import test_identity as here
print(*[here.digest(makes[0]()) for makes in here.DIFFERENT.values()])
"""


@pytest.mark.extended
@pytest.mark.slow
def test_another_process_has_the_same_digests() -> None:
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-c", REMOTE, root], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.split() == [digest(makes[0]()) for makes in DIFFERENT.values()]


def test_a_snapshot_of_another_log_is_refused(tmp_path: Path) -> None:
    """Also of a log that was once the same, as after a backup was put back."""
    for name, reward in (("a", 1.0), ("b", -1.0)):
        with service(tmp_path / name) as one:
            one.learn(one.decide(X[0]).token, reward)
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    for name in ("a", "b", "c"):
        with service(tmp_path / name) as one:
            one.learn(one.decide(X[1]).token, 1.0)
    for other, here in (("a", "b"), ("a", "c")):
        shutil.copy(tmp_path / other / SNAPSHOT, tmp_path / here / SNAPSHOT)
        with pytest.raises(ValueError, match=r"state.safetensors is of another log than .*decisions.sqlite: put"):
            service(tmp_path / here)
        (tmp_path / here / SNAPSHOT).unlink()
        service(tmp_path / here).close()


def test_an_agent_with_another_policy_is_refused(tmp_path: Path) -> None:
    def service(epsilon: float, **options: Any) -> seqdec.OnlineAgent:
        def make(site: Any) -> Any:
            return seqdec.agents.linear(site, policy=seqdec.policies.epsilon_greedy(epsilon))

        return seqdec.OnlineAgent(make, SITE, seed=0, folder=tmp_path, **options)

    with service(0.1) as one:
        one.learn(one.decide([0.0, 1.0]).token, 1.0)
    with pytest.raises(ValueError, match=r"the network, the policy or a function in them is another: .*relearn=True"):
        service(0.9)
    service(0.1).close()
    service(0.9, relearn=True).close()
    service(0.9, capacity=4).close()  # the digest does not depend on the outputs
    service(0.9).close()
    with pytest.raises(ValueError, match="relearn=True"):
        service(0.1, capacity=8)
