"""Processes: one folder and several objects of one, a forked one, what goes to others and back, and Ctrl-C."""

import copy
import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from filelock import FileLock
from flax import linen as nn
from gymnasium import spaces

import seqdec
from seqdec import agents, bo, envs, filters, likelihoods, models, policies
from seqdec.agents import linear
from seqdec.bo.surrogates import contract as surrogates
from seqdec.commands.folder import load_runs, read_manifest
from seqdec.core import Agent, Spaces
from seqdec.service import facade
from tests.boundary.entries import LOG
from tests.test_envs import CONTRACT, build

pytestmark = pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")

SITE = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
ITEMS = Spaces(spaces.Dict(video=spaces.Box(0, 8, (3,), np.int32)), spaces.Discrete(3))
X, KEY, ENV = np.zeros(2, np.float32), jax.random.key(0), envs.linear()


def service(folder: Path | None, make: Any = linear) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent(make, SITE, seed=0, folder=folder)


def is_locked(folder: Path) -> bool:
    try:
        with FileLock(folder / ".lock").acquire(timeout=0):
            return False
    except TimeoutError:
        return True


# One folder


def test_a_folder_that_is_open_in_this_process_or_in_another(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "bandit")
    first = service(tmp_path / "bandit")
    for name in ("bandit", "link", "link/../bandit"):
        with pytest.raises(FileExistsError, match=r"in use by this process: close\(\) what uses it"):
            service(tmp_path / name)
    first.learn(first.decide(X).token, 1.0)
    thread = threading.Thread(target=first.close)
    thread.start()
    thread.join()
    assert not is_locked(tmp_path / "bandit")
    code = "import sys, filelock as f; lock = f.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path / "bandit/.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(FileExistsError, match="in use by another process: wait for it"):
            service(tmp_path / "bandit")
        other.kill()
    with service(tmp_path / "link") as second:
        assert second.counts["rewards"] == 1


def test_what_is_garbage_uses_no_folder(tmp_path: Path) -> None:
    for _ in range(2):  # cells of a notebook, without `close`
        one: Any = service(tmp_path)
        one.itself = one  # the garbage collector has not seen it yet
        one.learn(one.decide(X).token, 1.0)
        del one
    with pytest.raises(TypeError, match=r"must be a seqdec.core.Agent.*got str"):
        service(tmp_path, lambda site: "no agent")
    with service(tmp_path) as again:
        assert again.counts["rewards"] == 2


def test_the_end_of_the_process_closes_no_log_that_a_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite crashes where one thread closes what another uses."""
    monkeypatch.setattr(facade, "_PATIENCE", 0.0)
    one, held, end = service(tmp_path), threading.Event(), threading.Event()

    def call() -> None:
        with one._transact.lock:
            held.set()
            end.wait()

    thread = threading.Thread(target=call)
    thread.start()
    held.wait()
    one._free()  # as `weakref.finalize` does at the end
    end.set()
    thread.join()
    assert one.decide(X).token
    facade._close(one._held)
    with pytest.raises(RuntimeError, match="is closed"):
        one.decide(X)


# A forked process


AGENT = linear(SITE)
COMPILED = seqdec.compiled(AGENT)
BARE = seqdec.compiled(AGENT._replace(spaces=None))
STATE = AGENT.init(KEY)
ONLINE: dict[str, Callable[[Any], Any]] = {
    "decide": lambda one: one.decide(X),
    "decide_many": lambda one: one.decide_many([X]),
    "learn": lambda one: one.learn("1-00", 1.0),
    "learn_many": lambda one: one.learn_many([("1-00", 1.0)]),
    "activate": lambda one: one.activate("1-00"),
    "withdraw": lambda one: one.withdraw("1-00"),
    "forget": lambda one: one.forget(["ann"]),
    "compact": lambda one: one.compact(60),
    "warm_up": lambda one: one.warm_up(),
    "warm_start": lambda one: one.warm_start(LOG),
    "add_arm": lambda one: one.add_arm(),
    "remove_arm": lambda one: one.remove_arm(0),
    "snapshot": lambda one: one.snapshot(),
    "backup": lambda one: one.backup("backup"),
    "log": lambda one: one.log(),
    "state": lambda one: one.state,
    "counts": lambda one: one.counts,
    "with": lambda one: one.__enter__(),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "another service": lambda: service(None),
    "run": lambda: seqdec.run(linear(ENV), ENV, 5, seed=0),
    "minimize": lambda: seqdec.minimize(lambda x: x[0], [(0, 1)], n_calls=2, seed=0),
    "optimizer": lambda: bo.BayesianOptimizer([(0, 1)], seed=0),
    "agent": lambda: linear(SITE),
    "act": lambda: AGENT.act(KEY, STATE, X),
    "update": lambda: AGENT.update(STATE, X, 0, 1.0),  # pyright: ignore[reportArgumentType]
    "compiled": lambda: seqdec.compiled(AGENT),
    "compiled init": lambda: COMPILED.init(KEY),
    "compiled act": lambda: COMPILED.act(KEY, STATE, X),
    "bare update": lambda: BARE.update(STATE, X, 0, 1.0),  # pyright: ignore[reportArgumentType]
    "environment": lambda: envs.make("linear"),
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


def test_a_forked_process_is_told(tmp_path: Path) -> None:
    search = bo.BayesianOptimizer([(0, 1)], seed=0)
    OTHERS["bare update"]()  # compiled before the fork
    others = OTHERS | {"ask": search.ask, "tell": lambda: search.tell([0.5], 1.0)}
    with service(tmp_path) as one:
        first = one.decide(X)
        told = in_child(*(functools.partial(call, one) for call in ONLINE.values()), *others.values())
        for name, line in zip((*ONLINE, *others), told, strict=True):
            assert line.startswith("RuntimeError: process "), (name, line)
            assert f"forked from process {os.getpid()}" in line and "after the fork (gunicorn: without" in line
        # What a forked process lets go of is its parent's.
        assert in_child(one.close, lambda: one.__exit__(None, None, None)) == ["", ""]
        assert is_locked(tmp_path)
        assert one.learn(first.token, 1.0) == "learned"


# Through pickle


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def program(function: Any, *arguments: Any) -> str:
    """What a function computes, as text."""
    return str(jax.make_jaxpr(function)(*arguments))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", agents.names())
def test_pickled_agents(name: str) -> None:
    where, context = (SITE, X) if "contexts" in agents.capabilities(name).spaces else (ITEMS, {"video": np.arange(3)})
    agent = agents.make(name, where)
    other = again(agent)
    assert repr(other) == repr(agent) and other.spaces == agent.spaces
    state = jax.eval_shape(agent.init, KEY)
    assert program(other.act, KEY, state, context) == program(agent.act, KEY, state, context)


@pytest.mark.parametrize("name", CONTRACT)
@pytest.mark.sampled(4)
def test_pickled_environments(name: str) -> None:
    env = build(name)
    other, state = again(env), jax.eval_shape(env.reset, KEY, env.params)[0]
    assert program(other.step, KEY, state, 0, other.params) == program(env.step, KEY, state, 0, env.params)


def test_other_pickled_parts() -> None:
    network = models.network(models.MLP(3, (4,), nn.gelu), X)
    params = network.init(KEY)
    flt = filters.hilofi(network, likelihoods.gaussian(0.1), rank=2)
    assert program(again(flt).init, KEY, params) == program(flt.init, KEY, params)
    assert program(again(network).apply, params, X) == program(network.apply, params, X)
    for likelihood in (likelihoods.gaussian(0.1), likelihoods.poisson(), likelihoods.categorical()):
        assert program(again(likelihood).cov, np.zeros(3)) == program(likelihood.cov, np.zeros(3))
    for thing in (*map(policies.make, policies.names()), envs.branin(), envs.drawnn(3), surrogates.make("gp", 2)):
        assert type(again(thing)) is type(thing)
    one, both = envs.FunctionalEnv(ENV), envs.FunctionalVectorEnv(ENV, 2)
    one.reset(seed=3), both.reset(seed=3)
    assert again(one).step(1)[1] == one.step(1)[1]  # in the middle of an episode
    np.testing.assert_array_equal(again(both).step(np.array([0, 1]))[1], both.step(np.array([0, 1]))[1])
    for other in (copy.copy(AGENT), copy.deepcopy(AGENT)):
        assert type(other) is Agent and other.init is AGENT.init and other.update is AGENT.update


def test_a_pickled_optimizer_goes_on_with_the_same_suggestions() -> None:
    """Also with functions and parts of the user's own."""
    branin, search = envs.branin(), bo.Search(raw_samples=64, num_restarts=4, steps=10)
    one = bo.BayesianOptimizer(
        [(-5.0, 10.0), (0.0, 15.0)],
        seed=0,
        capacity=16,
        search=search,
        surrogate=bo.gp(draws=2),
        acquisition=policies.greedy(),
        constraints=[lambda x: x[0] < 5],
    )
    for i in range(5):
        trial = one.ask()
        one.tell(trial, branin(trial.x), failed=i == 3)
    pending = one.ask()
    one.recommend()
    other = again(one)
    assert other.trials_dataframe().equals(one.trials_dataframe()) and other.reason == one.reason
    assert other.predict([1.0, 2.0]) == one.predict([1.0, 2.0])
    assert [copy.deepcopy(one).ask().x.tolist() for one in (one, other)] == [one.ask().x.tolist()] * 2
    other.tell(pending, 1.0)
    with pytest.raises(ValueError, match="read-only"):
        other.trials[0].x[0] = 3.0


def test_pickled_results_and_spaces() -> None:
    result = seqdec.minimize(lambda x: float(x[0]), [(0, 1)], n_calls=2, seed=0, progress=False, catch=ValueError)
    other = again(result)
    assert (other.x.tolist(), other.fun, other.message) == (result.x.tolist(), result.fun, result.message)
    kind, extra = bo.Categorical(("a", (1, 2), None)), bo.Conditional(bo.Real(0, 1), on="kind", values=("a",))
    space = bo.space_from({"kind": kind, "extra": extra, "count": bo.Integer(1, 9, log=True)})
    for thing in (space, *space.dimensions, result.optimizer.trials[0], result.optimizer.recommend()):
        assert repr(again(thing)) == repr(thing)
    assert again(space) == space


def test_what_cannot_be_pickled_says_what_to_do() -> None:
    lock = threading.Lock()
    with pytest.raises(pickle.PicklingError, match=r"this Agent cannot be pickled: .*; make it in the"):
        pickle.dumps(AGENT._replace(init=lambda key: lock))
    with (
        service(None) as one,
        pytest.raises(TypeError, match=r"an OnlineAgent cannot be pickled .*; send"),
    ):
        pickle.dumps(one)


# Ctrl-C

COMMAND = str(Path(sys.executable).with_name("seqdec"))


@pytest.mark.slow
def test_ctrl_c_is_quiet_and_keeps_the_finished_runs(tmp_path: Path) -> None:
    def listen() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs start with it ignored

    for folder, at_once in (("now", True), ("later", False)):
        out = tmp_path / folder
        arguments = ("run", "digits", "--seeds", "1", "--agents", "random,linear", "--steps", "20000")
        with subprocess.Popen(
            [COMMAND, *arguments, "--out", str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=listen,
        ) as process:
            time.sleep(0.4)
            while not at_once and process.poll() is None:
                time.sleep(0.1)
                if (out / "manifest.json").exists() and read_manifest(out)["runs"]:
                    break
            process.send_signal(signal.SIGINT)
            shown, error = process.communicate(timeout=100)
        assert (process.returncode, error.splitlines()[-1]) == (130, "seqdec: interrupted")
    assert "random" in shown and next(iter(load_runs(out))) == "random" and (out / "summary.csv").exists()


@pytest.mark.extended
def test_a_command_in_a_terminal_of_few_characters_or_closed() -> None:
    module = [sys.executable, "-m", "seqdec"]
    given = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run([*module, "run", "--help"], capture_output=True, env=given, check=True, timeout=100)
    assert b"digits" in shown.stdout and shown.stdout.isascii()
    for closed in ("1>&-", "2>&-", "<&-", "1>&- 2>&-"):
        shell = [f'exec "$@" {closed}', "sh", *module, "run", "digitz"]
        done = subprocess.run(["sh", "-c", *shell], capture_output=True, text=True, timeout=100)
        assert done.returncode == 2 and not done.stdout
        assert ("did you mean 'digits'" in done.stderr) != ("2>" in closed) and "Traceback" not in done.stderr
