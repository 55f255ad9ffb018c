"""Changes for people: one event as a line of text with colour. Pure."""

import base64
import binascii
import time
from collections.abc import Mapping
from typing import Any

import click
from msgspec import json as msgspec_json

__all__ = ["EventLines"]

_COLOURS = {"insert": "green", "update": "yellow", "delete": "red", "truncate": "red", "schema": "cyan"}
_CELL_WIDTH_MAX = 60
_BLOB_BYTES_SHOWN = 16
_MISSING = object()
_COLUMN_WIDTH_MAX = 24
"""Widest column of tables or keys; what is wider moves the rest of its own line alone."""


class EventLines:
    """Shows events below each other, in columns that grow with what they have to hold."""

    def __init__(self) -> None:
        self._table_width = 0
        self._key_width = 0

    def line(self, event: Mapping[str, Any]) -> str:
        """Return one event as a line; an update shows what it changed.

        Values are plain JSON, or typed literals, which distinguish blobs from texts.
        """
        op, table, key = str(event["op"]), str(event["table"]), ",".join(map(_cell, event.get("pk") or []))
        self._table_width = max(self._table_width, min(len(table), _COLUMN_WIDTH_MAX))
        self._key_width = max(self._key_width, min(len(key), _COLUMN_WIDTH_MAX))
        clock = time.strftime("%H:%M:%S", time.localtime(event["commit_ts_ms"] / 1000))
        head = (
            click.style(f"{clock}.{event['commit_ts_ms'] % 1000:03d} {event['seq']:>8} ", dim=True)
            + click.style(f"{op:<6} ", fg=_COLOURS.get(op), bold=True)
            + click.style(f"{table:<{self._table_width}}", bold=True)
            + f" {key:<{self._key_width}}"
        )
        return f"{head}  {_body(event)}".rstrip()


def _body(event: Mapping[str, Any]) -> str:
    before, after = event.get("before"), event.get("after")
    if event["op"] == "schema":
        return str(_plain((after or {}).get("ddl", "")))
    if event["op"] == "truncate":
        return click.style("(all rows removed)", dim=True)
    if before is not None and after is not None:
        changed = [name for name in after if before.get(name, _MISSING) != after[name]]
        if not changed:
            return click.style("(no column changed)", dim=True)
        old = {name: _cell(before[name]) if name in before else "?" for name in changed}  # ?: not sent by the source
        return "  ".join(f"{name}: {old[name]} → {_cell(after[name])}" for name in changed)
    image = after if after is not None else before
    return "  ".join(f"{name}={_cell(value)}" for name, value in (image or {}).items())


def _plain(value: Any) -> Any:
    """Return what a typed literal says; any other value is what it is."""
    match value:
        case {"t": "null"}:
            return None
        case {"t": "array", "v": list(items)} if "lower" not in value:
            return _plain_items(items)
        case {"t": "foreign", "type": str(), "v": said}:
            return said
        case {"t": str(), "v": said} | {"t": str(), "iso": said} if len(value) == 2:
            return said
        case _:
            return value


def _plain_items(items: list[Any]) -> list[Any]:
    return [_plain_items(item) if isinstance(item, list) else _plain(item) for item in items]


def _cell(value: Any) -> str:
    match value:
        case {"t": "bytes" | "geometry", "b64": str(encoded)}:
            return _blob(encoded)
        case _:
            value = _plain(value)
    text = value if isinstance(value, str) else msgspec_json.encode(value).decode()
    text = text.replace("\n", "⏎")
    return text if len(text) <= _CELL_WIDTH_MAX else f"{text[: _CELL_WIDTH_MAX - 1]}…"


def _blob(encoded: str) -> str:
    """Return a blob as SQL writes it; of a long one the beginning, and its length."""
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return encoded
    shown = data[:_BLOB_BYTES_SHOWN].hex()
    return f"x'{shown}'" if len(data) <= _BLOB_BYTES_SHOWN else f"x'{shown}…' ({len(data):,} bytes)"
