import pytest

from tailrace.model.table import Column, Kind, TableName
from tailrace.source.sqlite.announce import Announcer, number_before
from tailrace.source.sqlite.table_version import TableVersion
from tailrace.testing.registry import MemoryRegistry


def version_of(version, number, *columns):
    return TableVersion(version, "t", number, tuple(Column(c, Kind.ANY) for c in columns), (), f"t({columns})", 0, None)


FIRST = version_of(1, 1, "a")
SECOND = version_of(2, 2, "a", "b")
THIRD = version_of(3, 3, "a")


@pytest.mark.parametrize(
    ("latest", "before"),
    [
        (None, 0),
        (FIRST.schema("app", 1), 0),
        (SECOND.schema("app", 2), 0),
        (SECOND.schema("app", 7), 5),
        (version_of(9, 9, "z").schema("app", 4), 4),
        (THIRD.schema("app", 1), 0),
    ],
    ids=["unknown", "the first", "the second", "the second, counted on", "another one", "the first, seen again later"],
)
def test_the_log_counts_on_where_the_database_counts_anew(latest, before):
    assert number_before(latest, [FIRST, SECOND, THIRD]) == before


async def test_each_version_is_announced_once_and_in_order():
    registry = MemoryRegistry()
    announcer = Announcer("app", registry)
    await announcer.announce([SECOND, FIRST])
    await announcer.announce([SECOND, FIRST, THIRD])
    assert [schema.version for schema in registry.schemas.values()] == [1, 2, 3]
    assert announcer.ids == {1: 1, 2: 2, 3: 3}


async def test_announcing_again_after_a_restart_changes_nothing():
    registry = MemoryRegistry()
    await Announcer("app", registry).announce([FIRST, SECOND])
    again = Announcer("app", registry)
    await again.announce([FIRST, SECOND])
    assert again.ids == {1: 1, 2: 2}
    assert len(registry.schemas) == 2


async def test_after_capture_was_set_up_anew_the_versions_count_on():
    registry = MemoryRegistry()
    await Announcer("app", registry).announce([FIRST, SECOND])
    await Announcer("app", registry).announce([version_of(1, 1, "z")])
    assert registry.latest_schema(TableName("app", "t"))[1].version == 3
