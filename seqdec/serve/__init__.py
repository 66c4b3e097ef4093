"""The decision service: deployments of `seqdec.OnlineAgent` behind HTTP (`seqdec serve`, docs/serve.md)."""

from seqdec.serve.application import run
from seqdec.serve.config import Declaration, Settings, read

__all__ = ["Declaration", "Settings", "read", "run"]
