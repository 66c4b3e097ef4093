"""One folder and several objects of a process; a process that was forked; factories of agents of every form."""

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from filelock import FileLock
from gymnasium import spaces

import seqdec
from seqdec import envs, executors
from seqdec.agents import linear
from seqdec.core import Agent, HasSpaces, Spaces
from seqdec.persistence import locked

SITE = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
X = np.zeros(2, np.float32)


def service(folder: Path | None, make: Any = linear) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent(make, SITE, seed=0, folder=folder)


def cell(folder: Path) -> None:
    """A notebook cell without `close`."""
    one = service(folder)
    one.learn(one.decide(X).token, 1.0)


def is_locked(folder: Path) -> bool:
    lock = FileLock(folder / ".lock")
    try:
        with lock.acquire(timeout=0):
            return False
    except TimeoutError:
        return True


def test_a_folder_that_is_open_in_this_process(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "bandit")
    first = service(tmp_path / "bandit")
    for name in ("bandit", "link", "link/../bandit"):
        with pytest.raises(FileExistsError, match=r"in use by this process: close\(\) what uses it"):
            service(tmp_path / name)
    first.learn(first.decide(X).token, 1.0)
    first.close()
    with service(tmp_path / "link") as second:
        assert second.counts["rewards"] == 1


def test_what_is_garbage_uses_no_folder(tmp_path: Path) -> None:
    cell(tmp_path)
    cell(tmp_path)
    one: Any = service(tmp_path)
    one.itself = one  # the garbage collector has not seen it yet
    del one
    with service(tmp_path) as again:
        assert again.counts["rewards"] == 2
    failed: Any = None
    with pytest.raises(TypeError, match=r"got str"):
        failed = service(tmp_path, lambda site: "no agent")
    with service(tmp_path) as again:
        assert failed is None and again.counts["rewards"] == 2


def test_another_thread_closes(tmp_path: Path) -> None:
    one = service(tmp_path)
    assert is_locked(tmp_path)
    thread = threading.Thread(target=one.close)
    thread.start()
    thread.join()
    assert not is_locked(tmp_path)
    service(tmp_path).close()


def test_a_folder_of_another_process(tmp_path: Path) -> None:
    code = "import sys, filelock as f; lock = f.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(FileExistsError, match="in use by another process: wait for it"), locked(tmp_path):
            pass
        other.kill()
    with locked(tmp_path):
        pass


class Maker:
    """A factory that is an object."""

    def __call__(self, site: HasSpaces) -> Agent:
        """The agent."""
        return linear(site)


class Made(Agent):
    """An agent by a class of its own."""

    def __new__(cls, site: HasSpaces) -> Any:
        """The agent."""
        return linear(site)


MAKERS = {
    "name": "linear",
    "function": linear,
    "partial": functools.partial(linear, half_life=10),
    "lambda": lambda site: linear(site),
    "object": Maker(),
    "class": Made,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", MAKERS)
def test_what_makes_an_agent(kind: str) -> None:
    one = service(None, MAKERS[kind])
    assert one.agent.name == "linear"
    assert one.learn(one.decide(X).token, 1.0) == "learned"


@pytest.mark.parametrize(
    ("make", "site", "kind", "message"),
    [
        ("linaer", SITE, ValueError, "did you mean 'linear'"),
        (linear(SITE), SITE, TypeError, r"make must be a function \(spaces\) -> agent.*got Agent"),
        (None, SITE, TypeError, "make must be a function"),
        (lambda site: None, SITE, TypeError, "must be a seqdec.core.Agent.*got NoneType"),
        (linear, envs.linear, TypeError, "an observation_space and an action_space"),
        (linear, SITE.observation_space, TypeError, "an observation_space and an action_space"),
    ],
)
def test_what_makes_none(make: Any, site: Any, kind: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=message):
        seqdec.OnlineAgent(make, site, seed=0, folder=tmp_path)
    service(tmp_path).close()


@functools.cache
def optimizer() -> seqdec.bo.BayesianOptimizer:
    return seqdec.bo.BayesianOptimizer([(0, 1)], seed=0)


AGENT = linear(SITE)
COMPILED = seqdec.compiled(AGENT)
BARE = seqdec.compiled(AGENT._replace(spaces=None))
KEY = jax.random.key(0)
STATE = AGENT.init(KEY)
ENV = envs.linear()
LOG = seqdec.ope.make_log(action=[0], reward=[1.0], propensity=[0.5], context=[[0, 0]], num_actions=2)
ONLINE: dict[str, Callable[[Any], Any]] = {
    "decide": lambda one: one.decide(X),
    "decide_many": lambda one: one.decide_many([X]),
    "learn": lambda one: one.learn("1-00", 1.0),
    "learn_many": lambda one: one.learn_many([("1-00", 1.0)]),
    "warm_up": lambda one: one.warm_up(),
    "warm_start": lambda one: one.warm_start(LOG),
    "add_arm": lambda one: one.add_arm(),
    "remove_arm": lambda one: one.remove_arm(0),
    "snapshot": lambda one: one.snapshot(),
    "log": lambda one: one.log(),
    "state": lambda one: one.state,
    "counts": lambda one: one.counts,
    "with": lambda one: one.__enter__(),
    "another": lambda one: service(None),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "run": lambda: seqdec.run(linear(ENV), ENV, 5, seed=0),
    "minimize": lambda: seqdec.minimize(lambda x: x[0], [(0, 1)], n_calls=2, seed=0),
    "optimizer": lambda: seqdec.bo.BayesianOptimizer([(0, 1)], seed=0),
    "ask": lambda: optimizer().ask(),
    "tell": lambda: optimizer().tell([0.5], 1.0),
    "agent": lambda: linear(SITE),
    "act": lambda: AGENT.act(KEY, STATE, X),
    "update": lambda: AGENT.update(STATE, X, 0, 1.0),  # pyright: ignore[reportArgumentType]
    "compiled": lambda: seqdec.compiled(AGENT),
    "compiled init": lambda: COMPILED.init(KEY),
    "compiled act": lambda: COMPILED.act(KEY, STATE, X),
    "compiled update": lambda: COMPILED.update(STATE, X, 0, 1.0),  # pyright: ignore[reportArgumentType]
    "bare act": lambda: BARE.act(KEY, STATE, X),
    "bare update": lambda: BARE.update(STATE, X, 0, 1.0),  # pyright: ignore[reportArgumentType]
    "make": lambda: envs.make("linear"),
    "gymnasium": lambda: gymnasium.make("seqdec/LinearBandit-v0"),
}


def in_child(*calls: Callable[[], Any]) -> list[str]:
    """What each call raises in a forked process, or "" where it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(20)  # ends a process that waits for JAX
            for call in calls:
                try:
                    call()
                    told = ""
                except BaseException as error:
                    told = f"{type(error).__name__}: {error}".partition("\n")[0]
                os.write(writing, f"{told}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        told = [line.rstrip("\n") for line in lines]
    os.waitpid(child, 0)
    return told


pytestmark = pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")


def test_a_forked_process_is_told(tmp_path: Path) -> None:
    optimizer()
    executor = executors.Local(1)
    assert executor.submit(abs, -1).result() == 1
    with service(tmp_path) as one, executor:
        first = one.decide(X)
        calls = [functools.partial(call, one) for call in ONLINE.values()]
        calls += OTHERS.values()
        told = in_child(*calls)
        assert len(told) == len(calls)
        for name, line in zip((*ONLINE, *OTHERS), told, strict=True):
            assert line.startswith("RuntimeError: process "), (name, line)
            assert f"forked from process {os.getpid()}" in line and "after the fork (gunicorn: without" in line
        (told_of,) = in_child(lambda: executor.submit(abs, -1))
        assert told_of.startswith("RuntimeError: this executor belongs to the process that forked this one")
        # What a forked process lets go of is its parent's.
        assert in_child(one.close, executor.shutdown, lambda: one.__exit__(None, None, None)) == ["", "", ""]
        assert is_locked(tmp_path)
        assert one.learn(first.token, 1.0) == "learned"
        assert executor.submit(abs, -2).result() == 2


@pytest.mark.extended
def test_a_process_forked_before_anything_is_computed_computes(tmp_path: Path) -> None:
    """What is deleted in a forked process stays open in its parent."""
    code = """
import gc, os, sys, warnings
import numpy as np
from gymnasium import spaces
import seqdec
warnings.simplefilter("ignore")
def service(folder):
    site = seqdec.core.Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
    return seqdec.OnlineAgent(seqdec.agents.linear, site, seed=0, folder=folder)
child = os.fork()
if not child:
    with service(sys.argv[1]) as one:
        print(one.learn(one.decide([0, 0]).token, 1.0), flush=True)
    sys.exit()
os.waitpid(child, 0)
one = service(sys.argv[1])
child = os.fork()
if not child:
    del one
    gc.collect()
    os._exit(0)  # JAX itself does not survive another end
print(os.waitpid(child, 0)[1], one.learn(one.decide([0, 0]).token, 1.0), one.counts["rewards"])
try:
    service(sys.argv[1])
except FileExistsError as error:
    print("this process" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("learned\n0 learned 2\nTrue\n", "")
    with service(tmp_path) as one:
        assert one.counts["rewards"] == 2
