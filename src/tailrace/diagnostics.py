"""Diagnostics on standard error: text for people, JSON lines for machines. Never row values, never secrets.

A message is a constant text; what differs is in its fields. `docs/reference/logging.md` lists the messages.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from msgspec import json as msgspec_json

__all__ = ["JsonFormatter", "RepeatFilter", "TextFormatter", "set_up_logging"]

_REPEATS_MAX = 50
"""Lines of one message that are written in each window of `_WINDOW_S`."""

_WINDOW_S = 10.0

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the caller gave as `extra`.

    A logger that is made while PySpark makes one is of PySpark's class, which packs `extra` into a field `context`; two
    threads of PySpark at once leave that class set for all loggers that are made later.
    """
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    match fields.get("context"):
        case {"extra": dict() as given, **others}:
            return {**others, **given}
        case _:
            return fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec_json.encode(line, enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """One line: time, level, message, fields as name=value; a traceback below it where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{clock} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class RepeatFilter(logging.Filter):
    """Lets each message pass at most `most` times in a window; the next line after it says how many were left out.

    So ten thousand streams that come and go do not fill a disk with lines. Errors always pass.
    """

    def __init__(
        self, most: int = _REPEATS_MAX, window_s: float = _WINDOW_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._most = most
        self._window_s = window_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}
        """When the window of a message began, and how many lines of it there were since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is written; note in it how many before it were not."""
        if record.levelno >= logging.ERROR:
            return True
        message, now_s = (record.name, str(record.msg)), self._now_s()
        with self._lock:
            begin_s, count = self._windows.get(message, (now_s, 0))
            if now_s - begin_s >= self._window_s:
                if count > self._most:
                    record.left_out = count - self._most
                begin_s, count = now_s, 0
            self._windows[message] = begin_s, count + 1
        return count < self._most


def set_up_logging(level: str, form: str, stream: TextIO = sys.stderr) -> None:
    """Send all logging of this process to `stream`. `form` is text, json, or auto: text on a terminal."""
    text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "uvicorn", "asyncio", "py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLogger().level))
