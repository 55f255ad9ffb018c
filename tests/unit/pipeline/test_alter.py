"""What of a pipeline may be altered, and when."""

import pytest

from tailrace.meta.pipeline import Definition
from tailrace.model.errors import ConfigError
from tailrace.pipeline.alter import altered, check_place, is_elsewhere, is_fixed
from tailrace.pipeline.errors import PipelineError

BASE = Definition(
    name="p", source="shop", tables=("orders",), sink="postgresql://ann:old@db/shop?schema=copy", transform="SELECT 1"
)


@pytest.mark.parametrize(
    "sink",
    [
        "postgresql://ann:new@db/shop?schema=copy",
        "postgresql://bob:old@db/shop?schema=copy",
        "postgresql://ann:old@elsewhere:5433/shop?schema=copy",
        "postgresql://ann:old@db/shop?schema=copy&sslmode=require",
    ],
)
def test_the_way_to_a_sink_may_be_altered_at_any_time(sink):
    assert altered(BASE, sink=sink, begun=True).sink == sink


@pytest.mark.parametrize(
    "sink",
    [
        "postgresql://ann:old@db/other?schema=copy",
        "postgresql://ann:old@db/shop?schema=other",
        "postgresql://ann:old@db/shop",
        "mysql://ann:old@db/shop",
    ],
)
def test_the_place_in_a_sink_may_be_altered_only_before_anything_is_copied(sink):
    with pytest.raises(ConfigError, match="different sink") as refused:
        altered(BASE, sink=sink, begun=True)
    assert "old" not in str(refused.value)
    assert altered(BASE, sink=sink, begun=False).sink == sink


def test_the_server_may_be_altered_at_any_time():
    assert altered(BASE, server="http://new:1", begun=True).server == "http://new:1"


def test_a_transformation_is_altered_after_a_reset():
    with pytest.raises(PipelineError, match="pipeline reset p"):
        altered(BASE, transform="", begun=True)
    assert altered(BASE, transform="", begun=False).transform == ""
    assert altered(BASE, transform="SELECT 1", begun=True) == BASE


def test_one_kind_of_transformation_takes_the_place_of_the_other():
    changed = altered(BASE, transform_function="rules:totals", begun=False)
    assert (changed.transform, changed.transform_function) == ("", "rules:totals")
    assert altered(changed, transform="SELECT 1", begun=False) == BASE
    with pytest.raises(PipelineError, match="pipeline reset p"):
        altered(BASE, transform_function="rules:totals", begun=True)


def test_types_are_altered_before_anything_is_copied():
    assert altered(BASE, types={"orders.x": "int"}, begun=False).types == {"orders.x": "int"}
    with pytest.raises(PipelineError, match=r"old types.*pipeline reset p"):
        altered(BASE, types={"orders.x": "int"}, begun=True)


def test_the_layout_of_tables_is_altered_before_they_are_made():
    lake = Definition(name="p", source="shop", tables=("orders",), sink="delta:///lake/{table}")
    assert altered(lake, partition_by=("orders.x",), begun=False).partition_by == ("orders.x",)
    for given in ({"partition_by": ("orders.x",)}, {"properties": {"a": "b"}}):
        with pytest.raises(ConfigError, match="are made"):
            altered(lake, **given, begun=True)
    assert altered(lake, trigger_s=10.0, batch_changes=5, maintain_every_s=60.0, begun=True).batch_changes == 5


def test_tables_come_and_go_at_any_time_and_their_types_go_with_them():
    lake = Definition(
        name="p",
        source="shop",
        tables=("orders", "people"),
        sink="delta:///lake/{table}",
        types={"orders.x": "int", "people.y": "date"},
        partition_by=("people.y",),
    )
    changed = altered(lake, tables=("orders", "notes"), begun=True)
    assert (changed.tables, changed.types, changed.partition_by) == (("orders", "notes"), {"orders.x": "int"}, ())
    assert not is_fixed(lake, changed)
    with pytest.raises(ConfigError, match="name the tables"):
        altered(lake, tables=(), begun=True)
    with pytest.raises(ConfigError, match=r"put \{table\} into"):
        altered(BASE, sink="delta:///lake", tables=("a", "b"), transform="", begun=False)


def test_a_sink_that_does_not_have_the_mode_is_refused():
    with pytest.raises(ConfigError, match="no sink supports nowhere"):
        altered(BASE, sink="nowhere:", begun=False)


OBJECTS = "delta:s3://lake/{table}?endpoint=https://a&region=x&access_key_id=${A}&secret_access_key=${B}"


def test_the_way_to_object_storage_may_be_altered_and_another_endpoint_is_elsewhere():
    base = Definition(name="p", source="shop", tables=("orders",), sink=OBJECTS)
    others = [OBJECTS.replace("${A}", "${C}"), OBJECTS.replace("region=x", "region=y"), "delta:s3://lake/{table}"]
    changed = [altered(base, sink=sink, begun=True) for sink in others]
    assert [is_elsewhere(base, one) for one in changed] == [False, False, True]
    with pytest.raises(ConfigError, match="different sink"):
        altered(base, sink=OBJECTS.replace("s3://lake", "s3://other"), begun=True)


def test_only_another_host_or_port_is_elsewhere():
    assert is_elsewhere(BASE, altered(BASE, sink="postgresql://ann:old@db:1/shop?schema=copy", begun=True))
    assert not is_elsewhere(BASE, altered(BASE, sink="postgresql://bob:new@db/shop?schema=copy", begun=True))


def test_a_sink_elsewhere_that_has_nothing_of_the_pipeline_is_refused(tmp_path):
    made = Definition(name="p", source="shop", tables=("orders",), sink=f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(ConfigError, match="has nothing of pipeline 'p'"):
        check_place(made)
