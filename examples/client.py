"""Visitors of `examples/service.py`: threads that ask for decisions and report rewards, each over one connection.

python examples/client.py --port 8000 --threads 8 --requests 500
"""

import argparse
import contextlib
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def visit(port: int, requests: int, seed: int, times: list[float], results: list[str]) -> None:
    """Ask and report `requests` times; a digit's image as context, reward 1 for its class."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for row in np.random.default_rng(seed).integers(0, len(images), requests):
            decision = ask(connection, "/decide", {"context": (images[row] / 16).tolist()}, times)
            body = {"token": decision["token"], "reward": int(decision["action"] == labels[row])}
            results.append(ask(connection, "/learn", body, times)["result"])


def ask(connection: http.client.HTTPConnection, path: str, body: dict, times: list[float]) -> dict:
    """Answer to one request, whose seconds are added to `times`. Raises RuntimeError for an error of the server."""
    began = time.perf_counter()
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    except ConnectionRefusedError:
        raise SystemExit(
            f"no service answers at 127.0.0.1:{connection.port}: start examples/service.py first"
        ) from None
    response = connection.getresponse()
    content = json.loads(response.read())
    times.append(time.perf_counter() - began)
    if response.status != 200:
        raise RuntimeError(f"{path} answered {response.status}: {content}")
    return content


def load(port: int, threads: int, requests: int) -> dict[str, float]:
    """Requests per second, and quantiles of the milliseconds of one, with so many threads at once."""
    times: list[float] = []
    results: list[str] = []
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as workers:
        visits = [workers.submit(visit, port, requests, seed, times, results) for seed in range(threads)]
    for one in visits:
        one.result()  # raises what the visit raised
    seconds = time.perf_counter() - began
    p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
    learned = results.count("learned")
    return {
        "requests": len(times),
        "learned": learned,
        "per second": len(times) / seconds,
        "p50 ms": p50,
        "p99 ms": p99,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--requests", type=int, default=500, help="decisions of each thread")
    options = parser.parse_args()
    for name, value in load(options.port, options.threads, options.requests).items():
        print(f"{name:>12} {value:10.2f}")
