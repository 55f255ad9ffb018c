"""Why a streaming query ended, out of what Spark says, and whether it is worth another try. Pure."""

import re

from msgspec import Struct

from tailrace.client import errors as client_errors
from tailrace.client.errors import ClientError, ConnectionFailed
from tailrace.model.errors import TailraceError
from tailrace.pipeline.errors import PipelineError

__all__ = ["Failure", "failure_of"]

_OURS = re.compile(r"^(?:\S*Exception: )?tailrace\.[a-z_.]+\.(\w+): (.*)$", re.MULTILINE)
"""The last line of a traceback of Python in which one of our errors was raised."""

_TEXT_MAX = 500

_AWAY = frozenset({"ConnectionFailed", "TimedOut", "RateLimited"})
"""Errors that end by themselves, when the server is back or has time."""


class Failure(Struct, frozen=True):
    """An error, and what it calls for."""

    error: Exception
    final: bool = False
    """Whether another try would fail alike."""

    away: bool = False
    """Whether the server was away."""


def failure_of(text: str, problem: Exception | None) -> Failure:
    """Return why a query failed, by the text that Spark tells and what the sink's side saw.

    What is none of our errors is Spark's own trouble, a process that was killed, say.
    """
    if isinstance(problem, ConnectionFailed):
        return Failure(problem, away=True)
    if isinstance(problem, TailraceError):
        return Failure(problem, final=True)
    raised = _OURS.findall(text)
    if not raised:
        lines = text.strip().splitlines() or ["it does not say why"]
        return Failure(PipelineError(f"Spark failed: {lines[0][:_TEXT_MAX]}"))
    name, message = raised[-1]
    away = name in _AWAY
    return Failure(_error(name, message[:_TEXT_MAX]), final=not away, away=away)


def _error(name: str, message: str) -> TailraceError:
    """Return an error of a client as what it was, any other as an error of the pipeline."""
    kind = getattr(client_errors, name, None)
    if kind is ConnectionFailed:
        return ConnectionFailed(f"the server cannot be reached: {message}")
    if isinstance(kind, type) and issubclass(kind, client_errors.Refused):
        return kind(name, message)
    if isinstance(kind, type) and issubclass(kind, ClientError):
        return kind(message)
    return PipelineError(message)
