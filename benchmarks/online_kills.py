"""Kill a process that decides and learns, again and again, and count what an `OnlineAgent` loses: nothing.

python benchmarks/online_kills.py --kills 200

The child prints each decision and each reward once it is acknowledged; the parent kills it (SIGKILL) after a random
time and starts the next one in the same folder. In the end every acknowledged decision and reward must be in the log,
each reward learned once, and the belief must be that of a process that was never killed, to the bit.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import jax
import numpy as np

import seqdec
from seqdec import states
from seqdec.core import Spaces

ENV = seqdec.envs.make("linear")


def service(folder: str | None) -> seqdec.OnlineAgent:
    """The agent of all processes; a snapshot every 40 batches, so that kills hit snapshots too."""
    site = Spaces(ENV.observation_space, ENV.action_space)
    return seqdec.OnlineAgent(seqdec.agents.linear, site, seed=0, folder=folder, snapshot_every=40)


def write(folder: str) -> None:
    """Decide and learn until killed: late rewards, one by one and in batches."""
    with service(folder) as one:
        random_ = np.random.default_rng(one.counts["decisions"])
        shape, waiting = ENV.observation_space.shape or (), []
        one.warm_up()
        print("ready", flush=True)
        while True:
            for decision in one.decide_many(random_.normal(size=(3, *shape))):
                waiting.append(decision.token)
                print("decided", decision.token, flush=True)
            for _ in range(2):
                token = waiting.pop(random_.integers(len(waiting)))
                reward = float(random_.normal())
                one.learn(token, reward)
                print("learned", token, reward, flush=True)
            if len(waiting) > 8:
                pairs = [(token, float(random_.normal())) for token in waiting[:4]]
                one.learn_many(pairs)
                for token, reward in pairs:
                    print("learned", token, reward, flush=True)
                del waiting[:4]


def killed(folder: str, seconds: float) -> list[list[str]]:
    """What a child acknowledged before it was killed, so many seconds after it was ready."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{folder}-programs"}
    command = [sys.executable, __file__, "--child", folder]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None
    if child.stdout.readline() != "ready\n":
        raise RuntimeError(f"a child could not go on: exit code {child.wait()}")
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    lines = child.stdout.read().splitlines(keepends=True)
    child.wait()
    return [line.split() for line in lines if line.endswith("\n")]


def check(folder: Path, acknowledged: list[list[str]]) -> None:
    """Print what was lost or learned twice, and whether the belief is that of the whole log."""
    decided = [line[1] for line in acknowledged if line[0] == "decided"]
    learned = {line[1]: float(line[2]) for line in acknowledged if line[0] == "learned"}
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    (copy / "state.safetensors").unlink(missing_ok=True)
    with service(str(folder)) as one, service(str(copy)) as whole:
        pairs = zip(jax.tree.leaves(one.state), jax.tree.leaves(whole.state), strict=True)
        same = all(states.as_array("", a).tobytes() == states.as_array("", b).tobytes() for a, b in pairs)
        times = Counter(one.log().reward.tolist())
        counts = one.counts
        results = Counter(one.learn_many([(token, 0.0) for token in learned]))
        waiting = [token for token in decided if token not in learned]
        unknown = Counter(one.learn_many([(token, 0.0) for token in waiting]))["unknown"]
    print(f"in the log: {counts['decisions']:,} decisions, {counts['rewards']:,} rewards")
    print(f"acknowledged: {len(decided):,} decisions, of which lost {unknown}")
    print(f"acknowledged: {len(learned):,} rewards, of which lost {len(learned) - results['repeated']}")
    print(f"rewards that are not once in the log: {sum(times[reward] != 1 for reward in learned.values())}")
    print(f"belief after the last start equal to that of the whole log, to the bit: {same}")


def main(kills: int) -> None:
    """Kill, then check."""
    random.seed(0)
    with tempfile.TemporaryDirectory() as home:
        folder, acknowledged = Path(home) / "service", []
        for number in range(kills):
            acknowledged += killed(str(folder), random.uniform(0, 0.25))
            if number % 20 == 19:
                print(f"{number + 1} kills, {len(acknowledged):,} acknowledged", flush=True)
        check(folder, acknowledged)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        write(options.child)
    else:
        main(options.kills)
