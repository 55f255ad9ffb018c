"""Why a streaming query ended, out of what Spark says, and whether it is worth another try. Pure."""

import re

from msgspec import Struct

from tailrace.client import errors as client_errors
from tailrace.client.errors import ClientError, ConnectionFailed
from tailrace.model.errors import TailraceError
from tailrace.pipeline.errors import PipelineError

__all__ = ["INTERRUPTED", "Failure", "brief", "failure_of"]

_OURS = re.compile(r"^(?:\S*Exception: )?tailrace\.[a-z_.]+\.(\w+): (.*)$", re.MULTILINE)
"""The last line of a traceback of Python in which one of our errors was raised."""

_TEXT_MAX = 500

INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling o0.stop.\n: java.lang.InterruptedException"
"""The text by which Spark knows that a batch ended because its query was stopped, which is no failure."""

_AWAY = frozenset({"ConnectionFailed", "TimedOut", "RateLimited"})
"""Errors that end by themselves, when the server is back or has time."""


class Failure(Struct, frozen=True):
    """An error, and what it calls for."""

    error: Exception
    final: bool = False
    """Whether another try would fail alike."""

    away: bool = False
    """Whether the server was away."""


def brief(text: str) -> str:
    """Return what counts of a text of Spark: its first line, and the last one that names an error of ours.

    Spark compares what a batch raises with a regular expression that needs a frame of the stack for each character: a
    text with a stack trace of Java in it ends Spark's thread with a StackOverflowError.
    """
    first = text.strip().partition("\n")[0][:_TEXT_MAX].replace("py4j.protocol.", "")
    ours = [match[0] for match in _OURS.finditer(text)]
    return "\n".join([first, *(one[:_TEXT_MAX] for one in ours[-1:])])


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
