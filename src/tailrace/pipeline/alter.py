"""What of a pipeline may be altered, and when."""

from msgspec import structs

from tailrace.meta.pipeline import Definition, OnDrop
from tailrace.model.errors import ConfigError
from tailrace.pipeline.definition import check_server, is_message_sink
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.sink.object_place import SECRET_OPTIONS
from tailrace.pipeline.sinks import mode_of, sink_of
from tailrace.sink_url import SinkUrl, parse

__all__ = ["altered", "check_place", "is_elsewhere"]

_WAYS = ("api_key", "bearer", "ca", "endpoint", "region", "secret", "sslmode", "timeout", "token", *SECRET_OPTIONS)
"""Options of a sink that say how it is reached, not where it is."""


def altered(
    definition: Definition,
    *,
    server: str | None = None,
    sink: str | None = None,
    transform: str | None = None,
    on_drop: OnDrop | None = None,
    begun: bool,
) -> Definition:
    """Return a definition with another server, sink, transformation or policy; None for the one that it has. Pure.

    What says how server and sink are reached may always be altered: addresses, names, passwords. `begun` tells whether
    the sink has something of the pipeline: then the transformation stays, and so does the place inside the sink.

    Raises:
        PipelineError: The transformation cannot be altered now.
        ConfigError: The sink is another one, or the server's address is none.
    """
    fields = {"server": server, "sink": sink, "transform": transform, "on_drop": on_drop}
    changed = structs.replace(definition, **{name: value for name, value in fields.items() if value is not None})
    mode_of(changed.sink, changed.mode)
    if server is not None:
        check_server(server)
    if begun and changed.transform != definition.transform:
        name = definition.name
        raise PipelineError(
            f"the sink has rows from the old transformation: run `tailrace pipeline reset {name}`, then alter it, "
            f"then run it, which copies the tables again"
        )
    if begun and _inside(parse(changed.sink)) != _inside(parse(definition.sink)):
        raise ConfigError(
            "that is a different sink, without the copied rows: create a new pipeline for it. "
            "Only host, port, user and password of a sink can be altered"
        )
    return changed


def is_elsewhere(definition: Definition, changed: Definition) -> bool:
    """Tell whether a sink has another host, port or endpoint, so that it might be another one."""
    before, after = parse(definition.sink), parse(changed.sink)
    endpoints = before.options.get("endpoint"), after.options.get("endpoint")
    return (before.host, before.port) != (after.host, after.port) or endpoints[0] != endpoints[1]


def check_place(changed: Definition) -> None:
    """Look whether a sink at another address has what a pipeline put into it. What takes messages keeps no such thing.

    Raises:
        ConfigError: It has nothing of it.
        SinkError: It cannot be reached, or refuses.
    """
    if is_message_sink(changed):
        return
    sink = sink_of(changed.sink, changed.mode, pipeline=changed.name)
    try:
        sink.open([])
        found = sink.progress()
    finally:
        sink.close()
    if found is None:
        raise ConfigError(
            f"the sink at {parse(changed.sink)} has nothing of pipeline {changed.name!r}: move its data there first"
        )


def _inside(url: SinkUrl) -> tuple[str, str, dict[str, str]]:
    """Return the place inside a sink: what stays the same whatever way leads to it."""
    return url.scheme, url.path, {name: value for name, value in url.options.items() if name not in _WAYS}
