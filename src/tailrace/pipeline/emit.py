"""A pipeline as a project of Spark Declarative Pipelines: files that Spark runs without us, but for the source. Pure.

Each table has a file: its changes come into a streaming table, and AUTO CDC makes the table of it. AUTO CDC orders the
changes of a key by `_offset`, so it needs the rows before updates only where they tell that a key is gone. It knows no
truncation, so the stream of a table ends with an error at one, and where the table is dropped.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import assert_never

from tailrace.meta.pipeline import Definition, Mode
from tailrace.model.table import TableSchema
from tailrace.pipeline import transform_function
from tailrace.pipeline.change_rows import CHANGE_COLUMNS
from tailrace.pipeline.sink.row import key_names, refuse_unidentified
from tailrace.sink_url import parse, refuse_shared, spelled

__all__ = ["SPEC", "project"]

SPEC = "spark-pipeline.yml"
"""Name of the file that `spark-pipelines` looks for."""

_UNTRUNCATED = (
    "assert_true(_change_type NOT IN ('truncate', 'drop'), ",
    "'the table was emptied, which AUTO CDC cannot apply: run a full refresh of it') IS NULL",
)
"""Condition, by lines, that holds for every change and fails where a table is truncated or dropped."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def project(
    definition: Definition, mode: Mode, schemas: Sequence[TableSchema], *, storage: str, start: str
) -> dict[str, str]:
    """Return the files of a project by their paths.

    `storage` is where Spark keeps its checkpoints; `start` is where in the log a new run begins. No file holds a
    password or a token.

    Raises:
        ConfigError: Two tables would have one name.
        SinkRefusedError: The rows of a table have no key that identifies them, and the mode needs that.
    """
    refuse_unidentified(schemas, mode)
    names = {schema.table.wire: _name(definition, schema) for schema in schemas}
    refuse_shared(list(names.values()))
    files = {SPEC: _spec(definition, storage)}
    for schema in schemas:
        name = names[schema.table.wire]
        path = re.sub(r"[^A-Za-z0-9_]", "_", name)
        while f"transformations/{path}.py" in files:
            path += "_"
        files[f"transformations/{path}.py"] = _transformation(definition, mode, schema, name, start)
    return files


def _spec(definition: Definition, storage: str) -> str:
    """Return what the project is; its texts are JSON, which is YAML as well."""
    *namespace, _ = _catalog_name(definition) or [""]
    lines = [f"name: {json.dumps(definition.name)}", f"storage: {json.dumps(storage)}"]
    if namespace:
        lines.append(f"catalog: {json.dumps(namespace[0])}")
    if namespace[1:]:
        lines.append(f"database: {json.dumps('.'.join(namespace[1:]))}")
    lines += ["libraries:", "  - glob:", "      include: transformations/**"]
    return "\n".join(lines) + "\n"


def _transformation(definition: Definition, mode: Mode, schema: TableSchema, name: str, start: str) -> str:
    """Return the program that defines one table."""
    wire = schema.table.wire
    changes = f"{name}_changes" if mode is not Mode.APPEND else name
    prefix = f"{wire}."
    types = {name.removeprefix(prefix): one for name, one in definition.types.items() if name.startswith(prefix)}
    options = {
        "server": definition.server,
        "source": definition.source,
        "tables": wire if _PLAIN.fullmatch(wire) else json.dumps([wire], ensure_ascii=False),
        "layout": "typed",
        **({"types": json.dumps(types, ensure_ascii=False)} if types else {}),
        "start": start,
        **({} if mode is Mode.APPEND else {"preimages": "moved"}),
    }
    calling = (
        "" if not definition.transform_function else f"\nfrom {transform_function.__name__} import call_function\n"
    )
    parts = [
        f'"""Table {_plain(wire)} of source {_plain(definition.source)}, from the log of Tailrace."""\n\n'
        "from pyspark import pipelines as dp\n"
        f"from pyspark.sql import DataFrame, SparkSession\n{calling}\n"
        "spark = SparkSession.active()",
        *_reading(definition, mode, schema, changes, options),
        *_cdc(mode, schema, name, changes),
    ]
    return "\n\n\n".join(parts) + "\n"


def _reading(
    definition: Definition, mode: Mode, schema: TableSchema, changes: str, options: Mapping[str, str]
) -> list[str]:
    """Return the streaming table of changes, and the view under it where there is a transformation."""
    listed = "\n".join(f"        .option({_text(name)}, {_text(value)})" for name, value in options.items())
    checked = mode is not Mode.APPEND
    condition = "".join(f"            {_text(line)}\n" for line in _UNTRUNCATED)
    where = f"\n        .where(\n{condition}        )" if checked else ""
    load = f'    return (\n        spark.readStream.format("tailrace")\n{listed}\n        .load(){where}\n    )'
    if not definition.is_transformed:
        words = "The changes of the table."
        return [f'@dp.table(name={_literal(changes)})\ndef changes() -> DataFrame:\n    """{words}"""\n{load}']
    view = f"{changes}_read"
    plain = (
        f"@dp.temporary_view(name={_literal(view)})\ndef read() -> DataFrame:\n"
        f'    """The changes as they are."""\n{load}'
    )
    made = f'@dp.table(name={_literal(changes)})\ndef changes() -> DataFrame:\n    """The changes, transformed."""\n'
    if definition.transform_function:
        given = f"spark.readStream.table({_literal(view)})"
        function, table = _text(definition.transform_function), _text(schema.table.wire)
        return [plain, f"{made}    return call_function({function}, {given}, {table})"]
    views = ["changes", *([schema.table.name] if _PLAIN.fullmatch(schema.table.name) else [])]
    read = f"(SELECT * FROM STREAM {_quoted(view)})"  # noqa: S608 - it is the user's own SQL that is written down
    tables = ",\n".join(f"{one} AS {read}" for one in dict.fromkeys(views))
    sql = f"WITH {tables}\nSELECT * FROM (\n{definition.transform.strip().rstrip(';')}\n)"
    return [plain, f"TRANSFORMATION = {_lines(sql)}", f"{made}    return spark.sql(TRANSFORMATION)"]


def _cdc(mode: Mode, schema: TableSchema, name: str, changes: str) -> list[str]:
    """Return what makes the table of its changes."""
    match mode:
        case Mode.APPEND:
            return []
        case Mode.CURRENT:
            kind = 1
        case Mode.HISTORY:
            kind = 2
        case _:
            assert_never(mode)
    left_out = [one for one in CHANGE_COLUMNS.names if one != "_offset"]
    arguments = {
        "target": _literal(name),
        "source": _literal(changes),
        "keys": json.dumps([_quoted(one) for one in key_names(schema)], ensure_ascii=False),
        "sequence_by": json.dumps("_offset"),
        "apply_as_deletes": json.dumps("_change_type IN ('delete', 'update_preimage')"),
        "except_column_list": json.dumps(left_out),
        "stored_as_scd_type": str(kind),
    }
    listed = "\n".join(f"    {one}={value}," for one, value in arguments.items())
    return [f"dp.create_streaming_table({_literal(name)})\ndp.create_auto_cdc_flow(\n{listed}\n)"]


def _name(definition: Definition, schema: TableSchema) -> str:
    """Return the name of a table in its namespace: as the catalog sink has it, or as the source has it."""
    *_, template = _catalog_name(definition) or ["{table}"]
    return spelled(template, schema.table)


def _catalog_name(definition: Definition) -> list[str] | None:
    """Return the parts of the name of tables, where the sink is a catalog."""
    url = parse(definition.sink)
    return url.path.split(".") if url.scheme == "catalog" else None


def _quoted(name: str) -> str:
    """Return a name for SQL, bare where it can be."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _literal(name: str) -> str:
    """Return a name for SQL as a text of Python."""
    return _text(_quoted(name))


def _text(value: str) -> str:
    """Return a text as Python has it: as JSON does, in single quotes where it holds double ones alone."""
    return repr(value) if '"' in value and "'" not in value else json.dumps(value, ensure_ascii=False)


def _lines(value: str) -> str:
    """Return a text of several lines as Python has it."""
    escaped = value.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""\n{escaped}\n"""'


def _plain(name: str) -> str:
    """Return a name that may stand in a docstring."""
    return re.sub(r'["\\\n\r]', "_", name)
