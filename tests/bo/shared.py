"""One process of a shared search: python -m tests.bo.shared CHECKPOINT CALLS PROCESSES [kill]."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.bo.common import SQUARE, minimum
from tests.bo.searches import written

CALLS = 10


def search(checkpoint: str, calls: Path, processes: int, kill: bool) -> Any:
    """The search; its first call waits until all processes evaluate one, and is the last one of a process to kill."""

    def fun(x: Any) -> float:
        written(calls, f"{os.getpid()} {x.tolist()}")
        while len({line.split()[0] for line in calls.read_text().splitlines()}) < processes:
            time.sleep(0.02)
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return float((x[0] - 0.3) ** 2 + (x[1] - 0.4) ** 2)

    options = {"n_calls": CALLS, "initial": CALLS, "repeats": 0, "checkpoint": checkpoint}
    return minimum(fun, SQUARE, seed=None, shared=True, **options)


if __name__ == "__main__":
    found = search(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), "kill" in sys.argv[4:])
    values = [found.func_vals.tolist(), [x.tolist() for x in found.x_iters]]
    print(json.dumps([found.x.tolist(), found.fun, found.nfev, found.message, *values]))
