"""What of a pipeline may be altered, and when."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from tailrace.meta.pipeline import Definition
from tailrace.model.errors import ConfigError
from tailrace.pipeline.declared import split_name
from tailrace.pipeline.definition import check_definition, is_message_sink
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.sink.object_place import SECRET_OPTIONS
from tailrace.pipeline.sinks import check_sink, mode_of, sink_of
from tailrace.sink_url import SinkUrl, parse

__all__ = ["FIXED", "altered", "check_place", "is_elsewhere", "is_fixed"]

_WAYS = ("api_key", "bearer", "ca", "endpoint", "region", "secret", "sslmode", "timeout", "token", *SECRET_OPTIONS)
"""Options of a sink that say how it is reached, not where it is."""


FIXED = ("transform", "transform_function", "py_files", "types", "partition_by", "properties")
"""Members of a definition that stay as they are when something is copied: the sink has rows that they made."""


def altered(definition: Definition, *, begun: bool, **given: Any) -> Definition:
    """Return a definition with other members; None is for one that stays as it is.

    What says how server and sink are reached may always be altered, and so may policies. `begun` tells whether the sink
    has something of the pipeline: then the members in `FIXED` stay, and so does the place inside the sink. Of two kinds
    of transformations the one that is given takes the place of the other.

    Raises:
        PipelineError: Something cannot be altered now.
        ConfigError: The sink is another one, or something is not valid.
    """
    fields = {name: value for name, value in given.items() if value is not None}
    kept = definition
    if "tables" in fields:
        check_sink(fields.get("sink", definition.sink), definition.mode, fields["tables"])
        kept = structs.replace(definition, **_of_tables(definition, fields["tables"]))
    if fields.get("transform"):
        fields = {"transform_function": "", "py_files": (), **fields}
    elif fields.get("transform_function"):
        fields = {"transform": "", "py_files": (), **fields}
    changed = check_definition(structs.replace(kept, **fields))
    mode_of(changed.sink, changed.mode)
    if begun and changed.transformation != definition.transformation:
        raise PipelineError(_copied_with("transformation", definition.name))
    if begun and changed.types != kept.types:
        raise PipelineError(_copied_with("types", definition.name))
    layouts = [(one.partition_by, one.properties) for one in (kept, changed)]
    if begun and layouts[0] != layouts[1]:
        raise ConfigError("the tables of the sink are made: partition_by and properties are for new ones")
    if begun and _inside(parse(changed.sink)) != _inside(parse(definition.sink)):
        raise ConfigError(
            "that is a different sink, without the copied rows: create a new pipeline for it. "
            "Only host, port, user and password of a sink can be altered"
        )
    return changed


def _of_tables(definition: Definition, tables: Sequence[str]) -> dict[str, Any]:
    """Return what of a definition is about columns, for these tables alone."""
    left = tuple(tables)
    return {
        "types": {name: type_ for name, type_ in definition.types.items() if split_name(name, left)},
        "partition_by": tuple(name for name in definition.partition_by if split_name(name, left)),
    }


def is_fixed(definition: Definition, changed: Definition) -> bool:
    """Tell whether something differs that may be altered only before anything is copied."""
    same = structs.replace(definition, **_of_tables(definition, changed.tables))
    return any(getattr(same, name) != getattr(changed, name) for name in FIXED)


def _copied_with(what: str, name: str) -> str:
    return (
        f"the sink has rows from the old {what}: run `tailrace pipeline reset {name}`, then alter it, "
        f"then run it, which copies the tables again"
    )


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
