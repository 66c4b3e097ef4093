"""A bandit behind HTTP (pip install starlette uvicorn prometheus-client).

    python examples/service.py FOLDER --port 8000

POST /decide   {"context": [64 numbers]}                    -> {"action": 3, "propensity": 0.9, "token": "1-5f..."}
POST /learn    {"token": "1-5f...", "reward": 1.0}          -> {"result": "learned"}; with --weights a reward such as
                                                               {"click": 1}, or more names
POST /explain  {"context": [64 numbers]}                    -> {"actions": [{"action": 3, "mean": 0.7, ...}]}
GET  /arms                                                  -> {"arms": [0, 1]}
POST /arms     {}                                           -> {"arm": 2}, which is new
GET  /counts                                                -> {"decisions": 1, "rewards": 1, "learned": 1}
GET  /health                                                -> {"status": "ok"}, or 503
GET  /metrics                                               -> for Prometheus

    python examples/service.py FOLDER --encoder encoder.json --arms 3 --log past.parquet

With the file of an encoder (`Encoder.to_json`) a context is a JSON object of its columns, such as {"age": 31, "city":
"Rome"}; --log warm-starts from the file of a log (`seqdec.ope.Log.save`).

POST takes JSON by its content type (415 otherwise) of at most a megabyte (413). 422 tells what is wrong with a request,
503 that the agent cannot answer.

FOLDER keeps decisions, rewards, snapshots and compiled programs; a service that is started again goes on from there.
It belongs to one process: serve with one worker, whose threads share the agent, and let it make the agent itself.
"""

import argparse
import contextlib
import json
import math
import time
from pathlib import Path

import uvicorn
from gymnasium import spaces
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import seqdec
from seqdec.core import Spaces
from seqdec.features import Encoder
from seqdec.ope import Log
from seqdec.runtime import one_blas_thread

CONTEXT = spaces.Box(0, 1, (64,))
LARGEST = 2**20
"""Bytes of a body."""
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


async def body_of(request):
    """The JSON object that a client sent, without reading more of it than is allowed."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send JSON, as Content-Type: application/json")
    too_large = HTTPException(413, f"send at most {LARGEST:,} bytes")
    if int(request.headers.get("content-length", 0)) > LARGEST:
        raise too_large
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > LARGEST:
            raise too_large
    try:
        body = json.loads(content)
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    if not isinstance(body, dict):
        raise TypeError(f"the body must be a JSON object; got {body!r:.80}")
    return body


def part(body, name):
    """What a client has to send. Raises ValueError."""
    if name not in body:
        raise ValueError(f"the body lacks {name!r}; it has {', '.join(map(repr, body)) or 'nothing'}")
    return body[name]


class Counts(Collector):
    """What an agent counts, for Prometheus."""

    def __init__(self, service):
        self.service = service

    def collect(self):
        """One metric, by what it counts."""
        found = GaugeMetricFamily("seqdec_count", "Of OnlineAgent.counts, such as decisions and rewards", labels=["of"])
        for name, number in self.service.counts.items():
            found.add_metric([name], number)
        yield found


def counted(app, registry, paths):
    """`app`, whose requests and their seconds are in the metrics."""
    requests = Counter("seqdec_requests", "Requests by path and status", ["path", "status"], registry=registry)
    seconds = Histogram("seqdec_seconds", "Seconds of a request", ["path"], registry=registry, buckets=BUCKETS)

    async def serve(scope, receive, send):
        if scope["type"] != "http":
            return await app(scope, receive, send)
        path, status, began = scope["path"] if scope["path"] in paths else "other", 500, time.perf_counter()

        async def sent(message):
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await app(scope, receive, sent)
        finally:
            requests.labels(path, status).inc()
            seconds.labels(path).observe(time.perf_counter() - began)

    return serve


def application(folder: Path, *, arms: int = 10, encoder: Encoder | None = None, log: Log | None = None, **rewards):
    """The routes, and the agent that they share from start to end; its rewards have options of `OnlineAgent`."""
    seqdec.compilation_cache(folder / "programs")
    site = Spaces(CONTEXT if encoder is None else encoder.space, spaces.Discrete(arms))
    service = seqdec.OnlineAgent(
        lambda site: seqdec.agents.hilofi(site, rank=10), site, seed=0, folder=folder, encoder=encoder, **rewards
    )

    @contextlib.asynccontextmanager
    async def lifespan(app):
        with one_blas_thread(), service:
            service.warm_up()
            if log is not None:
                service.warm_start(log)
            yield

    async def decide(request):
        body = await body_of(request)
        return JSONResponse(service.decide(part(body, "context"), body.get("mask"))._asdict())

    async def learn(request):
        body = await body_of(request)
        result = service.learn(part(body, "token"), part(body, "reward"))
        return JSONResponse({"result": result}, 404 if result == "unknown" else 200)

    async def explain(request):
        body = await body_of(request)
        found = await run_in_threadpool(service.explain, part(body, "context"), body.get("mask"))
        rows = found.to_pandas().to_dict("records")
        known = [
            {name: value for name, value in row.items() if not math.isnan(value)} for row in rows
        ]  # JSON has no NaN
        return JSONResponse({"actions": known})

    async def all_arms(request):
        if request.method == "GET":
            return JSONResponse({"arms": service.arms})
        await body_of(request)
        return JSONResponse({"arm": await run_in_threadpool(service.add_arm)})

    async def counts(request):
        return JSONResponse(service.counts)

    async def health(request):
        service.counts  # noqa: B018 (raises where the agent cannot answer)
        return JSONResponse({"status": "ok"})

    async def metrics(request):
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def refused(request, error):
        return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 422)

    async def unable(request, error):
        return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 503)

    async def wrong(request, error):
        return JSONResponse({"error": error.detail}, error.status_code)

    registry = CollectorRegistry()
    registry.register(Counts(service))
    routes = [Route(f"/{call.__name__}", call, methods=["POST"]) for call in (decide, learn, explain)]
    routes += [Route(f"/{call.__name__}", call) for call in (counts, health, metrics)]
    routes += [Route("/arms", all_arms, methods=["GET", "POST"])]
    errors = dict.fromkeys((ValueError, TypeError), refused) | {HTTPException: wrong}
    errors |= dict.fromkeys((RuntimeError, OSError, MemoryError), unable)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=errors)
    return counted(app, registry, {route.path for route in routes})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--encoder", type=Path, help="file of an encoder, as JSON; default: contexts of 64 numbers")
    parser.add_argument("--arms", type=int, default=10, help="at the first start")
    parser.add_argument("--log", type=Path, help="file of a log to learn before the first request")
    parser.add_argument("--weights", type=json.loads, help="""of named rewards, as '{"click": 1.0, "revenue": 0.05}'""")
    parser.add_argument("--after", type=float, help="seconds in which a decision takes rewards")
    parser.add_argument("--default", type=json.loads, help="what is not reported by then: a number, or an object")
    options = parser.parse_args()
    rewards = {"reward_weights": options.weights, "reward_after": options.after, "reward_default": options.default}
    encoder = options.encoder and Encoder.from_json(options.encoder.read_text(encoding="utf-8"))
    log = options.log and Log.load(options.log)
    made = application(options.folder, arms=options.arms, encoder=encoder, log=log, **rewards)
    uvicorn.run(made, host="127.0.0.1", port=options.port, access_log=False)
