from tailrace.model.table import Column, Kind, TableName
from tailrace.source.sqlite.source import Announcer
from tailrace.source.sqlite.table_version import TableVersion
from tailrace.testing.registry import MemoryRegistry


def version_of(version, number, *columns):
    return TableVersion(version, "t", number, tuple(Column(c, Kind.ANY) for c in columns), (), f"t({columns})", 0, None)


FIRST = version_of(1, 1, "a")
SECOND = version_of(2, 2, "a", "b")
THIRD = version_of(3, 3, "a")


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


async def test_one_that_is_captured_again_as_it_was_keeps_its_number():
    registry = MemoryRegistry()
    await Announcer("app", registry).announce([FIRST, SECOND, THIRD])
    again = Announcer("app", registry)
    await again.announce([version_of(1, 1, "a")])
    assert again.ids == {1: 3}
    assert again.schemas[1].version == 3
