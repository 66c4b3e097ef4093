"""An agent in a service: decisions and late rewards in a durable log, and a belief that survives a crash."""

from seqdec.service.control import Control
from seqdec.service.explanation import Explanation
from seqdec.service.facade import Decision, OnlineAgent
from seqdec.service.items import Catalog
from seqdec.service.logs import read_encoder, read_history, read_log
from seqdec.service.postgres import Postgres
from seqdec.service.report import Answer, Report

__all__ = [
    "Answer",
    "Catalog",
    "Control",
    "Decision",
    "Explanation",
    "OnlineAgent",
    "Postgres",
    "Report",
    "read_encoder",
    "read_history",
    "read_log",
]
