"""The only place that prints: events to people (terminal, plain lines) or to programs (JSON)."""

from cluster.report.base import Reporter
from cluster.report.choose import make_reporter
from cluster.report.redact import Redactor

__all__ = ["Redactor", "Reporter", "make_reporter"]
