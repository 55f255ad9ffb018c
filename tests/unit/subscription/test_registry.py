"""Facts about the registry of subscriptions."""

import pytest
from msgspec import structs

from feeding import ROW_OPS
from tailrace.clock import SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.errors import InvalidRequestError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.subscription import FilterOptions, Format, Include, SubscriptionDraft, SubscriptionId, TableTarget
from tailrace.model.table import TableName
from tailrace.subscription.registry import Registry

DRAFT = SubscriptionDraft(
    "app",
    TableTarget((TableName("app", "users"),)),
    FilterOptions(ROW_OPS),
    Include(),
    Format.PLAIN_JSON,
    Offset(0),
    snapshot=True,
)


@pytest.fixture
async def store():
    store = await MetaStore.open("sqlite://", SystemClock())
    yield store
    await store.close()


async def test_every_change_is_there_when_the_registry_is_opened_again(store):
    registry = await Registry.open(store, 9)
    kept, gone, put = await registry.add(DRAFT), await registry.add(DRAFT), SubscriptionId(7)
    await registry.restore({put: DRAFT, SubscriptionId(5): DRAFT}, ())
    await registry.pause(kept.id, paused=True)
    await registry.reset(kept.id, Offset(4))
    await registry.snapshot_sent(put, Offset(3))
    await registry.remove(gone.id)
    again = await Registry.open(store, 9)
    assert again.all() == registry.all()
    assert [(s.id, s.cursor, s.paused, s.snapshot, s.snapshot_offset) for s in again.all()] == [
        (1, 4, True, False, None),
        (5, 0, False, True, None),
        (7, 0, False, True, 3),
    ]
    assert again.lag_max({"app": Offset(10)}) == 10


async def test_the_cursor_waits_for_the_snapshot(store):
    registry = await Registry.open(store, 9)
    number = (await registry.add(DRAFT)).id
    assert (await registry.advance(number, Offset(3))).cursor == 0
    await registry.snapshot_sent(number, Offset(2))
    assert (await registry.advance(number, Offset(1))).snapshot
    advanced = await registry.advance(number, Offset(2))
    assert (advanced.cursor, advanced.snapshot, advanced.snapshot_offset) == (2, False, None)


async def test_there_are_no_more_than_allowed_and_none_that_is_unknown(store):
    registry = await Registry.open(store, 1)
    number = (await registry.add(DRAFT)).id
    with pytest.raises(InvalidRequestError, match="close some"):
        await registry.add(DRAFT)
    await registry.remove(number)
    with pytest.raises(InvalidRequestError, match="more than 1"):
        await registry.restore({number: DRAFT, SubscriptionId(5): DRAFT}, ())
    assert registry.all() == []
    for call in (registry.remove(number), registry.advance(number, Offset(1)), registry.pause(number, paused=True)):
        with pytest.raises(UnknownSubscriptionError):
            await call


async def test_transient_subscriptions_are_gone_when_the_registry_is_opened_again(store):
    registry = await Registry.open(store, 9)
    passing = await registry.add(structs.replace(DRAFT, transient=True, snapshot=False))
    kept = await registry.add(DRAFT)
    assert (await registry.advance(passing.id, Offset(5))).cursor == registry.get(passing.id).cursor == 5
    assert [(s.id, s.cursor) for s in await store.subscriptions()] == [(passing.id, 0), (kept.id, 0)]
    assert [s.id for s in (await Registry.open(store, 9)).all()] == [kept.id]
