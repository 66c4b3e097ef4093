"""A bandit behind HTTP, with Starlette and uvicorn (pip install starlette uvicorn).

    python examples/service.py FOLDER --port 8000

POST /decide   {"context": [64 numbers]}                    -> {"action": 3, "propensity": 0.9, "token": "1-5f..."}
POST /learn    {"token": "1-5f...", "reward": 1.0}          -> {"result": "learned"}
GET  /counts                                                -> {"decisions": 1, "rewards": 1, "learned": 1}

FOLDER keeps decisions, rewards, snapshots and compiled programs; a service that is started again goes on from there.
It belongs to one process: serve with one worker, whose threads share the agent, and let it make the agent itself.
"""

import argparse
import contextlib
from pathlib import Path
from types import SimpleNamespace

import uvicorn
from gymnasium import spaces
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import seqdec
from seqdec.runtime import one_blas_thread

SITE = SimpleNamespace(observation_space=spaces.Box(0, 1, (64,)), action_space=spaces.Discrete(10))


def application(folder: Path) -> Starlette:
    """The routes, and the agent that they share from start to end."""
    seqdec.compilation_cache(folder / "programs")
    service = seqdec.OnlineAgent(lambda site: seqdec.agents.hilofi(site, rank=10), SITE, seed=0, folder=folder)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        with one_blas_thread(), service:
            service.warm_up()
            yield

    async def decide(request):
        body = await request.json()
        return JSONResponse(service.decide(body["context"], body.get("mask"))._asdict())

    async def learn(request):
        body = await request.json()
        result = service.learn(body["token"], body["reward"])
        return JSONResponse({"result": result}, 404 if result == "unknown" else 200)

    async def counts(request):
        return JSONResponse(service.counts)

    async def refused(request, error):
        return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 422)

    async def unable(request, error):
        return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 503)

    routes = [Route(f"/{call.__name__}", call, methods=["POST"]) for call in (decide, learn)]
    errors = dict.fromkeys((ValueError, TypeError, KeyError), refused)
    errors |= dict.fromkeys((RuntimeError, OSError, MemoryError), unable)
    return Starlette(routes=[*routes, Route("/counts", counts)], lifespan=lifespan, exception_handlers=errors)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    uvicorn.run(application(options.folder), host="127.0.0.1", port=options.port, access_log=False)
