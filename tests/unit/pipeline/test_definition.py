"""Facts about the definitions of pipelines."""

import msgspec
import pytest

from tailrace.message.shape import ShapeOptions
from tailrace.meta.dead_letter import OnRefused
from tailrace.model.errors import ConfigError
from tailrace.pipeline.definition import (
    Definition,
    check_definition,
    definition_of_file,
    is_message_sink,
    shape_of,
    takes_images,
)
from tailrace.pipeline.sink.base import Mode
from tailrace.sink_url import parse

GOOD = Definition(name="p", source="shop", tables=("orders",), sink="delta:///lake")


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"name": "a b"}, "name of a pipeline"),
        ({"name": ""}, "name of a pipeline"),
        ({"name": "../up"}, "name of a pipeline"),
        ({"tables": ()}, "--table"),
        ({"tables": ("a", "a")}, "twice"),
        ({"sink": "nowhere"}, "not a URL"),
        ({"server": "127.0.0.1:8080"}, "server address"),
        ({"server": "http://"}, "server address"),
        ({"server": "http://there:port"}, "server address"),
        ({"server": "http://ann:s3cret@there"}, "TAILRACE_TOKEN"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_what_to_write(members, says):
    with pytest.raises(ConfigError, match=says) as refused:
        check_definition(msgspec.structs.replace(GOOD, **members))
    assert "s3cret" not in str(refused.value)


def test_a_file_says_the_same_as_the_command_line(tmp_path):
    file = tmp_path / "orders-to-lake.toml"
    file.write_text('source = "shop"\ntables = ["orders", "lines"]\nsink = "delta:///lake/{table}"\nmode = "history"\n')
    made = definition_of_file(file)
    assert (made.name, made.tables, made.mode) == ("orders-to-lake", ("orders", "lines"), Mode.HISTORY)


@pytest.mark.parametrize(
    ("text", "says"),
    [("source = ", "TOML"), ('sauce = "x"', "sauce"), ('source = "s"\ntables = ["t"]', "sink")],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(tmp_path, text, says):
    file = tmp_path / "p.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        definition_of_file(file)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        definition_of_file(tmp_path / "none.toml")


def test_the_password_of_a_sink_is_not_shown():
    made = msgspec.structs.replace(GOOD, sink="postgresql://me:secret@host/db")
    assert "secret" not in str(parse(made.sink))
    assert "me" in str(parse(made.sink))


def test_messages_have_an_envelope_a_filter_a_projection_and_a_way_with_refusals(tmp_path):
    file = tmp_path / "orders.toml"
    file.write_text(
        'source = "shop"\ntables = ["orders"]\nsink = "redis://h/{table}"\nenvelope = "debezium"\n'
        'filter = "cel: row.qty > 1"\nproject = ["*", "total = row.qty * 2"]\non_refused = "wait"\n'
    )
    made = definition_of_file(file)
    assert shape_of(made) == ShapeOptions((), "cel: row.qty > 1", ("*", "total = row.qty * 2"), "debezium")
    assert (made.on_refused, is_message_sink(made), takes_images(made)) == (OnRefused.WAIT, True, True)
    assert not takes_images(msgspec.structs.replace(made, transform="SELECT * FROM changes"))
    assert not takes_images(GOOD)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"sink": "redis://h/{table}", "envelope": "nothing"}, "unknown envelope"),
        ({"filter": "id > 1"}, "a delta sink takes transform"),
        ({"on_refused": OnRefused.STOP}, "a delta sink takes transform"),
    ],
)
def test_what_is_said_about_messages_must_make_sense(members, says):
    with pytest.raises(ConfigError, match=says):
        check_definition(msgspec.structs.replace(GOOD, **members))


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"transform": "SELECT 1", "transform_function": "a:b"}, "one transformation"),
        ({"transform_function": "a.b"}, "module:function"),
        ({"types": {"nowhere.x": "int"}}, "TABLE.COLUMN=TYPE"),
        ({"trigger_s": -1.0}, "trigger_s is from 0"),
        ({"batch_changes": -5}, "batch_changes is from 0"),
        ({"maintain_every_s": 5.0}, "60 or more"),
        ({"maintain_every_s": 60.0, "sink": "sqlite:///x.db"}, "for sinks delta and iceberg"),
        ({"properties": {"a": "b"}, "sink": "iceberg:///x"}, "for delta sinks, not iceberg"),
        ({"partition_by": ("country",)}, "TABLE.COLUMN"),
        ({"types": {"orders": "int"}}, "TABLE.COLUMN=TYPE"),
        ({"types": {"orders.x": "number"}}, "unknown type 'number'"),
        ({"transform_function": "a:b()"}, "module:function"),
        ({"py_files": ("a.py",)}, "write transform_function"),
        ({"transform_function": "a:b", "py_files": ("a.txt",)}, "neither a module"),
        ({"transform_function": "a:b", "py_files": ("nowhere.py",)}, "no file nowhere.py"),
    ],
)
def test_transformations_types_and_operation_must_make_sense(members, says):
    with pytest.raises(ConfigError, match=says):
        check_definition(msgspec.structs.replace(GOOD, **members))


def test_files_that_a_definition_names_are_beside_it(tmp_path):
    (tmp_path / "rules.py").write_text("")
    file = tmp_path / "lake.toml"
    members = ['source = "s"', 'tables = ["t"]', 'sink = "delta:///lake"', 'transform_function = "rules:totals"']
    file.write_text("\n".join([*members, 'py_files = ["rules.py"]']))
    assert definition_of_file(file).py_files == (str(tmp_path / "rules.py"),)
