"""A server of one deployment in a program of your own: settings made in Python, and paths without its name.

    python examples/service.py FOLDER --port 8000

POST /decide, /learn and /explain are those of the deployment `main`, with contexts of 64 numbers; docs/serve.md
describes them, and the server of several deployments that `seqdec serve` starts from a file.
"""

import argparse
from pathlib import Path

from seqdec.serve import Settings
from seqdec.serve.application import application
from seqdec.serve.config import Found
from seqdec.serve.connections import server

MAIN = {"arms": list(range(10)), "context": {"size": 64, "low": 0, "high": 1}, "agent": "linear"}
SHORT = {f"/{call}": f"/v1/main/{call}" for call in ("decide", "learn", "explain")}


def settings(folder: Path, port: int, declaration: dict) -> Found:
    """Settings of one deployment, which answers as soon as the server does."""
    values = {"server": {"port": port, "wait": True}, "deployments": {"main": declaration}}
    return Found(Settings.model_validate(values), folder, {})


def shortened(app):
    """`app`, with short paths."""

    async def answered(scope, receive, send):
        await app({**scope, "path": SHORT.get(scope.get("path"), scope.get("path"))}, receive, send)

    return answered


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    found = settings(options.folder, options.port, MAIN)
    server(shortened(application(found)), found.settings.server).run()
