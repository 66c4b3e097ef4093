"""An agent in a service: decisions and late rewards, a durable log of both, and a belief that survives a crash."""

from seqdec.online.agent import Decision, OnlineAgent
from seqdec.online.catalog import Catalog
from seqdec.online.explanation import Explanation
from seqdec.online.reading import read_encoder, read_history, read_log

__all__ = ["Catalog", "Decision", "Explanation", "OnlineAgent", "read_encoder", "read_history", "read_log"]
