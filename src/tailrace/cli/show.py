"""Changes for people: one event as lines of text with colour. Pure."""

import time
from collections.abc import Mapping
from typing import Any

import click
from msgspec import json as msgspec_json

__all__ = ["show_event"]

_COLOURS = {"insert": "green", "update": "yellow", "delete": "red", "schema": "cyan"}
_CELL_WIDTH_MAX = 60
_MISSING = object()


def show_event(event: Mapping[str, Any]) -> str:
    """Return one event, in its plain JSON form, as a line; an update shows what it changed."""
    op = str(event["op"])
    clock = time.strftime("%H:%M:%S", time.localtime(event["commit_ts_ms"] / 1000))
    head = (
        click.style(f"{clock}.{event['commit_ts_ms'] % 1000:03d} {event['seq']:>8} ", dim=True)
        + click.style(f"{op:7}", fg=_COLOURS.get(op), bold=True)
        + click.style(str(event["table"]), bold=True)
        + f" {_cells(event.get('pk') or [])}"
    )
    return f"{head}  {_body(event)}".rstrip()


def _body(event: Mapping[str, Any]) -> str:
    before, after = event.get("before"), event.get("after")
    if event["op"] == "schema":
        return str((after or {}).get("ddl", ""))
    if before is not None and after is not None:
        changed = [name for name in after if before.get(name, _MISSING) != after[name]]
        return "  ".join(f"{name}: {_cell(before.get(name))} → {_cell(after[name])}" for name in changed)
    image = after if after is not None else before
    return "  ".join(f"{name}={_cell(value)}" for name, value in (image or {}).items())


def _cells(values: list[Any]) -> str:
    return ",".join(map(_cell, values))


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec_json.encode(value).decode()
    text = text.replace("\n", "⏎")
    return text if len(text) <= _CELL_WIDTH_MAX else f"{text[: _CELL_WIDTH_MAX - 1]}…"
