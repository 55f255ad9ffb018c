"""Facts about subscriptions as they are kept, in memory and in the metadata database."""

import pytest
from msgspec import structs

from feeding import ROW_OPS, draft_of, schema_of
from tailrace.clock import SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.errors import InvalidRequestError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.start import After, Earliest
from tailrace.model.subscription import (
    FilterOptions,
    Format,
    Include,
    SubscribeRequest,
    SubscriptionDraft,
    SubscriptionId,
    TableTarget,
)
from tailrace.model.table import TableName
from tailrace.subscription.service import ServiceOptions, SubscriptionService
from tailrace.testing.log import MemoryLog

USERS = TableTarget((TableName("app", "users"),))
REQUEST = SubscribeRequest(
    USERS, filter=FilterOptions(ROW_OPS), include=Include(), format=Format.PLAIN_JSON, start=Earliest()
)
DRAFT = SubscriptionDraft("app", USERS, FilterOptions(ROW_OPS), Include(), Format.PLAIN_JSON, Offset(0), snapshot=True)


@pytest.fixture
async def store():
    store = await MetaStore.open("sqlite://", SystemClock())
    yield store
    await store.close()


@pytest.fixture
async def log():
    log = MemoryLog()
    schema = await log.put_schema(schema_of("users"))
    await log.append([draft_of([(Op.INSERT, schema)] * 10)])
    return log


async def service_of(log, store, subscriptions_max=9):
    return await SubscriptionService.open({"app": log}, store, ServiceOptions(subscriptions_max=subscriptions_max))


async def test_every_change_is_there_when_the_service_is_opened_again(log, store):
    service = await service_of(log, store)
    kept, gone, put = (await service.subscribe(REQUEST)).id, (await service.subscribe(REQUEST)).id, SubscriptionId(7)
    await service.restore({put: DRAFT, SubscriptionId(5): DRAFT})
    await service.subscription(kept).pause()
    await service.subscription(kept).reset(After(4))
    await service.subscription(put).snapshot_sent(Offset(3))
    await service.subscription(gone).close()
    again = await service_of(log, store)
    assert again.subscriptions() == service.subscriptions()
    assert [(s.id, s.cursor, s.paused, s.snapshot, s.snapshot_offset) for s in again.subscriptions()] == [
        (1, 4, True, False, None),
        (5, 0, False, True, None),
        (7, 0, False, True, 3),
    ]
    assert again.lag_max() == 10


async def test_the_cursor_waits_for_the_snapshot(log, store):
    service = await service_of(log, store)
    await service.restore({SubscriptionId(1): DRAFT})
    handle = service.subscription(SubscriptionId(1))
    assert (await handle.acknowledge(Offset(3))).cursor == 0
    await handle.snapshot_sent(Offset(2))
    assert (await handle.acknowledge(Offset(1))).snapshot
    advanced = await handle.acknowledge(Offset(2))
    assert (advanced.cursor, advanced.snapshot, advanced.snapshot_offset) == (2, False, None)
    assert handle.record is advanced


async def test_there_are_no_more_than_allowed(log, store):
    service = await service_of(log, store, 1)
    number = (await service.subscribe(REQUEST)).id
    with pytest.raises(InvalidRequestError, match="close some"):
        await service.subscribe(REQUEST)
    await service.subscription(number).close()
    with pytest.raises(InvalidRequestError, match="more than 1"):
        await service.restore({number: DRAFT, SubscriptionId(5): DRAFT})
    assert service.subscriptions() == []


@pytest.mark.parametrize("replaced", [False, True], ids=["closed", "replaced"])
async def test_a_handle_ends_with_its_subscription_whoever_has_the_number_then(log, store, replaced):
    service = await service_of(log, store)
    number = (await service.subscribe(REQUEST)).id
    handle = service.subscription(number)
    if replaced:
        await service.restore({number: structs.replace(DRAFT, snapshot=False, owner="grace")})
    else:
        await handle.close()
    calls = (
        lambda: handle.acknowledge(Offset(1)),
        lambda: handle.snapshot_sent(None),
        handle.pause,
        handle.resume,
        lambda: handle.reset(Earliest()),
        handle.close,
    )
    for call in calls:
        with pytest.raises(UnknownSubscriptionError):
            await call()
    with pytest.raises(UnknownSubscriptionError):
        handle.status()
    assert [(s.cursor, s.owner) for s in service.subscriptions()] == ([(0, "grace")] if replaced else [])


async def test_transient_subscriptions_are_gone_when_the_service_is_opened_again(log, store):
    service = await service_of(log, store)
    passing = await service.subscribe(structs.replace(REQUEST, transient=True))
    kept = await service.subscribe(REQUEST)
    assert (await service.subscription(passing.id).acknowledge(Offset(5))).cursor == 5
    assert [(s.id, s.cursor) for s in await store.subscriptions()] == [(passing.id, 0), (kept.id, 0)]
    assert [s.id for s in (await service_of(log, store)).subscriptions()] == [kept.id]
