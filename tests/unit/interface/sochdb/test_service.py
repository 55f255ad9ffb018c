"""`sochdb.v1.SubscriptionService`, called without a server."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from feeding import feeding, schema_of
from tailrace.access.keeper import Keeper
from tailrace.access.keys import Keys
from tailrace.access.principal import Principal
from tailrace.delivery.grpc.call import StatusCode, StatusError
from tailrace.delivery.grpc.proto import sochdb_pb2 as proto
from tailrace.delivery.grpc.status import status_of
from tailrace.delivery.presenter import Presenter
from tailrace.interface.sochdb.service import GrpcOptions, SochdbTools, sochdb_service
from tailrace.meta.key_store import KeyStore
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.errors import TailraceError
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, SourceTarget, SubscribeRequest
from tailrace.model.table import Column, Kind
from tailrace.subscription.access import Scopes
from tailrace.testing.call import MemoryCall, messages_of
from tailrace.testing.clock import FakeClock
from web import until

WAIT_S = 20
READ = frozenset({"read"})


class World:
    """The service over a log in memory."""

    def __init__(self, feeds, options=None, keeper=None):
        self.feeds = feeds
        self.keeper = keeper
        self.service = feeds.service
        self.log = feeds.log
        self.metrics = Metrics()
        presenter = Presenter(1 << 20, self.metrics.encoded_changes)
        self.methods = sochdb_service(
            SochdbTools(Scopes(feeds.service, keeper), presenter, self.metrics, options or GrpcOptions())
        ).methods

    @asynccontextmanager
    async def stream(self, request=None, metadata=None, principal=None, method="Subscribe"):
        """Run a streaming call until the block ends."""
        call = MemoryCall(metadata, **({} if principal is None else {"principal": principal}))
        request = proto.SubscribeRequest() if request is None else request
        data = request if isinstance(request, bytes) else request.SerializeToString()
        streaming = Streaming(call, asyncio.create_task(self.methods[method].stream(call, data)), method)
        try:
            yield streaming
        finally:
            streaming.task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await streaming.task

    async def unary(self, method, request, answer, principal=None):
        call = MemoryCall(principal=principal) if principal else MemoryCall()
        try:
            data = request if isinstance(request, bytes) else request.SerializeToString()
            return answer.FromString(await self.methods[method].unary(call, data))
        except TailraceError as error:
            raise status_of(error) from error

    async def list(self, namespace="", principal=None):
        request = proto.ListSubscriptionsRequest(namespace=namespace)
        answer = await self.unary("ListSubscriptions", request, proto.ListSubscriptionsResponse, principal)
        return list(answer.subscriptions)

    async def cancel(self, name, principal=None):
        request = proto.CancelSubscriptionRequest(subscription_id=name)
        answer = await self.unary("CancelSubscription", request, proto.CancelSubscriptionResponse, principal)
        return answer.success, answer.error


class Streaming:
    """A streaming call under way."""

    def __init__(self, call, task, method):
        self.call = call
        self.task = task
        self._message = proto.SubscribeEvent if method == "Subscribe" else proto.WatchKeyEvent
        self._messages = call.messages()

    async def begun(self):
        """Return the name of the subscription when the stream has begun."""
        begun = asyncio.create_task(self.call.begun())
        await asyncio.wait({begun, self.task}, return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_S)
        if not begun.done():
            begun.cancel()
            await self.ended()
        return begun.result().get("x-tailrace-subscription")

    async def event(self):
        """Return the next event; raise what ends the stream instead."""
        following = asyncio.ensure_future(anext(self._messages))
        await asyncio.wait({following, self.task}, return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_S)
        if following.done():
            return self._message.FromString(following.result())
        following.cancel()
        await self.ended()
        raise AssertionError("the stream has ended well")

    async def events(self, count):
        return [await self.event() for _ in range(count)]

    async def ended(self):
        """Return when the stream has ended with OK; raise its status otherwise."""
        try:
            async with asyncio.timeout(WAIT_S):
                await self.task
        except TailraceError as error:
            raise status_of(error) from error


@pytest.fixture
async def world():
    clock = FakeClock()
    store = await MetaStore.open("sqlite://", clock)
    keeper = Keeper(Keys({}, KeyStore(store, clock), "", clock), clock, 100)
    async with feeding() as feeds:
        made = World(feeds, keeper=keeper)
        made.clock = clock
        yield made
    await store.close()


def request_of(**fields):
    return proto.SubscribeRequest(**fields)


async def refused(world, request=None, **options):
    async with world.stream(request, **options) as stream:
        with pytest.raises(StatusError) as caught:
            await stream.event()
    return caught.value


async def test_a_stream_has_the_changes_that_come_with_both_images(world):
    async with world.stream(request_of(namespace="app", tables=["users"])) as stream:
        assert await stream.begun() == "sub-1"
        await world.feeds.write((Op.INSERT, 1, None, "Ada"), (Op.UPDATE, 1, "Ada", "Grace"))
        await world.feeds.write((Op.DELETE, 1, "Grace", None))
        inserted, updated, deleted = await stream.events(3)
    assert (inserted.sequence, inserted.table, inserted.key) == (1, "users", b"[1]")
    assert (inserted.before_value, inserted.after_value) == (b"", b'{"id":1,"name":"Ada"}')
    assert (updated.before_value, updated.after_value) == (b'{"id":1,"name":"Ada"}', b'{"id":1,"name":"Grace"}')
    assert (deleted.before_value, deleted.after_value) == (b'{"id":1,"name":"Grace"}', b"")
    assert inserted.txn_id == updated.txn_id != deleted.txn_id
    assert [event.operation for event in (inserted, updated, deleted)] == [1, 2, 3]


async def test_a_table_that_is_not_there_yet_is_seen_from_its_first_change(world):
    async with world.stream(request_of(tables=["orders"])) as named, world.stream() as all_of_them:
        await named.begun()
        await all_of_them.begun()
        orders = await world.log.put_schema(schema_of("orders"))
        await world.feeds.write((Op.INSERT, 1, None, "Ada"))
        await world.feeds.write((Op.INSERT, 7, None, "Ada"), schema=orders)
        assert (await named.event()).table == "orders"
        assert [event.table for event in await all_of_them.events(2)] == ["users", "orders"]


async def test_a_name_with_a_dot_is_a_table_of_a_schema_or_one_with_a_dot_in_its_name(world):
    async with world.stream(request_of(tables=["other.things"])) as stream:
        await stream.begun()
        for schema in (schema_of("things"), schema_of("things", space="other"), schema_of("other.things")):
            await world.feeds.write((Op.INSERT, 7, None, "Ada"), schema=await world.log.put_schema(schema))
        assert [event.sequence for event in await stream.events(2)] == [2, 3]


async def test_sequence_n_is_the_first_to_be_sent(world):
    await world.feeds.append(*[Op.INSERT] * 5)
    for start, first in ((3, 3), (1, 1), (5, 5)):
        async with world.stream(request_of(start_sequence=start)) as stream:
            assert (await stream.event()).sequence == first
    async with world.stream(request_of(start_sequence=6)) as stream:
        await stream.begun()
        await world.feeds.append(Op.INSERT)
        assert (await stream.event()).sequence == 6


async def test_a_start_beyond_the_next_change_is_out_of_range(world):
    await world.feeds.append(Op.INSERT)
    for start in (3, 2**64 - 1):
        status = await refused(world, request_of(start_sequence=start))
        assert status.code is StatusCode.OUT_OF_RANGE
        assert dict(status.trailing) == {"x-tailrace-requested": str(start), "x-tailrace-head": "1"}


async def test_a_start_behind_the_horizon_is_an_overrun_with_both_numbers(world):
    await world.feeds.append(*[Op.INSERT] * 9)
    world.log.forget_before(5)
    status = await refused(world, request_of(start_sequence=2))
    assert (status.code, status.message) == (
        StatusCode.OUT_OF_RANGE,
        "CDC overrun: requested seq 2 but oldest available is 5",
    )
    assert dict(status.trailing) == {"x-tailrace-requested": "2", "x-tailrace-oldest": "5"}
    assert world.service.subscriptions() == []


@pytest.mark.parametrize(
    ("operations", "seen"),
    [([], [1, 2, 3, 4]), ([1, 2], [1, 2]), ([4], [4]), ([0], [1, 2, 3, 4]), ([9], [1, 2, 3, 4]), ([9, 3], [3])],
)
async def test_operations_that_nobody_knows_are_left_out_and_none_is_all(world, operations, seen):
    async with world.stream(request_of(operations=operations)) as stream:
        await stream.begun()
        await world.feeds.write((Op.INSERT, 1, None, "a"), (Op.UPDATE, 1, "a", "b"), (Op.DELETE, 1, "b", None))
        await world.feeds.append(Op.SCHEMA)
        assert [event.operation for event in await stream.events(len(seen))] == seen


async def test_a_predicate_is_enforced_with_three_values_of_truth(world):
    async with world.stream(request_of(tables=["users"], where_predicate="name > 'B'")) as stream:
        await stream.begun()
        await world.feeds.write((Op.INSERT, 1, None, "Ada"), (Op.INSERT, 2, None, "Bob"))
        draft = world.feeds.draft(world.feeds.schema_id, [])
        draft.add(Op.INSERT, world.feeds.schema_id, b"[3]", after=b'{"id":3,"name":null}')
        await world.log.append([draft])
        await world.feeds.write((Op.UPDATE, 2, "Bob", "Ada"), (Op.INSERT, 4, None, "Eve"))
        assert [event.key for event in await stream.events(3)] == [b"[2]", b"[2]", b"[4]"]


async def test_with_all_tables_one_that_lacks_a_column_has_nothing_to_send(world):
    priced = schema_of("priced", columns=(Column("id", Kind.I64), Column("price", Kind.I64)))
    priced_id = await world.log.put_schema(priced)
    async with world.stream(request_of(where_predicate="price > 5")) as stream:
        await stream.begun()
        await world.feeds.write((Op.INSERT, 1, None, "Ada"))
        draft = world.feeds.draft(priced_id, [])
        draft.add(Op.INSERT, priced_id, b"[7]", after=b'{"id":7,"price":6}')
        await world.log.append([draft])
        assert (await stream.event()).table == "priced"


@pytest.mark.parametrize(
    ("tables", "where", "says"),
    [
        (["users"], "price > 5", "price"),
        ([], "price > 5", "price"),
        (["users"], "name >", "^"),
        (["unknown"], "name >", "^"),
        (["users"], "x" * (1 << 20) + "y", "characters"),
        (["users"], "(" * 5000, "deep"),
    ],
)
async def test_a_predicate_that_cannot_be_right_is_refused_with_its_place(world, tables, where, says):
    status = await refused(world, request_of(tables=tables, where_predicate=where))
    assert status.code is StatusCode.INVALID_ARGUMENT
    assert says in status.message
    assert len(status.message) < 1000


async def test_a_named_table_that_loses_a_column_of_the_predicate_ends_the_stream(world):
    async with world.stream(request_of(tables=["users"], where_predicate="name = 'Ada'")) as stream:
        await stream.begun()
        changed = await world.log.put_schema(schema_of("users", version=2, columns=(Column("id", Kind.I64),)))
        await world.feeds.write((Op.INSERT, 1, None, "Ada"), schema=changed)
        with pytest.raises(StatusError) as caught:
            await stream.event()
    assert caught.value.code is StatusCode.FAILED_PRECONDITION


async def test_a_write_has_no_more_events_than_the_client_wants(world):
    await world.feeds.append(*[Op.INSERT] * 100)
    for batch, largest in ((7, 7), (0, 100), (1, 1), (2**32 - 1, 100)):
        async with world.stream(request_of(start_sequence=1, batch_size=batch)) as stream:
            events = await stream.events(100)
            assert [event.sequence for event in events] == list(range(1, 101))
            assert max(len(messages_of(data)) for data in stream.call.writes) == largest


@pytest.mark.parametrize("namespace", ["", "default", "app"])
async def test_a_namespace_is_a_source_and_none_is_the_only_one(world, namespace):
    async with world.stream(request_of(namespace=namespace)) as stream:
        await stream.begun()
        (info,) = await world.list(namespace)
        assert (info.subscription_id, info.namespace) == ("sub-1", namespace or "app")


async def test_an_unknown_namespace_is_told_with_those_that_there_are(world):
    status = await refused(world, request_of(namespace="nowhere"))
    assert (status.code, status.message) == (StatusCode.NOT_FOUND, "namespace 'nowhere' not found; there is app")
    assert await world.list("nowhere") == []


async def test_a_foreign_namespace_is_denied(world):
    stranger = Principal("x", tenant="t", capabilities=frozenset({"read"}), namespaces=frozenset({"mine"}))
    status = await refused(world, request_of(namespace="app"), principal=stranger)
    assert (status.code, status.message) == (
        StatusCode.PERMISSION_DENIED,
        "Access denied to namespace 'app' for tenant 't'",
    )
    async with world.stream() as stream:
        name = await stream.begun()
        assert await world.list(principal=stranger) == []
        assert await world.cancel(name, stranger) == (False, "Subscription 'sub-1' not found")


async def test_what_a_principal_may_not_see_is_never_sent(world):
    orders = await world.log.put_schema(schema_of("orders"))
    mine = Principal("mia", capabilities=READ, tables=frozenset({"app.users"}), rows={"app.users": "name = 'mine'"})
    async with world.stream(principal=mine) as stream:
        await stream.begun()
        await world.feeds.write((Op.INSERT, 1, None, "other"), (Op.INSERT, 2, None, "mine"))
        await world.feeds.write((Op.INSERT, 3, None, "mine"), schema=orders)
        await world.feeds.write((Op.UPDATE, 2, "mine", "other"), (Op.UPDATE, 1, "other", "mine"))
        inserted, gone, come = await stream.events(3)
    assert (inserted.sequence, inserted.operation) == (2, 1)
    assert (gone.operation, gone.before_value, gone.after_value) == (3, b'{"id":2,"name":"mine"}', b"")
    assert (come.operation, come.before_value, come.after_value) == (1, b"", b'{"id":1,"name":"mine"}')


async def test_subscriptions_of_others_are_not_there(world):
    async with world.stream(principal=Principal("alice", capabilities=READ)) as stream:
        name = await stream.begun()
        bob = Principal("bob", capabilities=READ)
        assert await world.list(principal=bob) == []
        assert await world.cancel(name, bob) == (False, f"Subscription '{name}' not found")
        status = await refused(world, metadata={"x-tailrace-subscription": name}, principal=bob)
        assert status.code is StatusCode.NOT_FOUND
        root = Principal("root", capabilities=frozenset({"admin"}))
        assert [info.subscription_id for info in await world.list(principal=root)] == [name]


async def test_a_stream_ends_with_the_credentials_that_opened_it(world):
    expires_us = world.clock.now_us() + 1_000_000
    async with world.stream(principal=Principal("eve", capabilities=READ, expires_time_us=expires_us)) as stream:
        await stream.begun()
        world.clock.advance(2.0)
        await world.keeper.look()
        with pytest.raises(StatusError) as caught:
            await stream.ended()
    assert (caught.value.code, caught.value.message) == (
        StatusCode.UNAUTHENTICATED,
        "Authentication token has expired.",
    )
    assert world.service.subscriptions() == []


async def test_the_listing_shows_the_streams_there_are_and_how_far_they_are(world):
    await world.feeds.append(*[Op.INSERT] * 4)
    async with world.stream(request_of(tables=["users", "b"], start_sequence=2, operations=[1])) as stream:
        await stream.events(3)
        await world.feeds.append(Op.DELETE)
        async with world.stream() as other:
            await other.begun()
            one, two = await world.list()
            assert (one.subscription_id, list(one.tables), one.start_sequence) == ("sub-1", ["users", "b"], 2)
            assert (two.subscription_id, list(two.tables), two.current_sequence) == ("sub-2", [], 0)
            assert one.created_at_us > 0
            await until(
                lambda: world.service.subscription(1).status().subscription.cursor >= 4, "what was sent is acknowledged"
            )
            assert (await world.list())[0].current_sequence == 4
    assert await world.list() == []


async def test_a_stream_that_ends_leaves_no_subscription_behind(world):
    async with world.stream() as stream:
        await stream.begun()
        assert [subscription.transient for subscription in world.service.subscriptions()] == [True]
    assert world.service.subscriptions() == []
    assert world.service.feeds_open() == 0


async def test_cancelling_ends_the_stream_well(world):
    async with world.stream() as stream:
        name = await stream.begun()
        assert await world.cancel(name) == (True, "")
        await stream.ended()
        assert await world.cancel(name) == (False, "Subscription 'sub-1' not found")


@pytest.mark.parametrize("name", ["", "sub-", "sub-9", "sub-0", "x" * 100, "sub-99999999999999999999999", "sub-1\n"])
async def test_cancelling_what_is_not_there_is_told_in_the_answer(world, name):
    success, error = await world.cancel(name)
    assert not success
    assert error == f"Subscription '{name[:64]}' not found"


async def test_numbers_are_never_given_twice(world):
    names = []
    for _ in range(3):
        async with world.stream() as stream:
            names.append(await stream.begun())
    assert names == ["sub-1", "sub-2", "sub-3"]


async def test_a_kept_subscription_outlives_its_stream_and_is_resumed_where_it_was_acknowledged(world):
    async with world.stream(request_of(tables=["users"]), {"x-tailrace-keep": "true"}) as stream:
        name = await stream.begun()
        await world.feeds.append(*[Op.INSERT] * 3)
        await stream.events(3)
    (kept,) = world.service.subscriptions()
    assert (kept.transient, kept.cursor) == (False, 0)
    await world.service.subscription(kept.id).acknowledge(2)
    async with world.stream(request_of(), {"x-tailrace-subscription": name}) as stream:
        assert (await stream.event()).sequence == 3
        assert await stream.begun() == name
    for start, first in ((1, 3), (3, 3)):  # what was acknowledged is never sent again, whatever the start
        async with world.stream(request_of(start_sequence=start), {"x-tailrace-subscription": name}) as stream:
            assert (await stream.event()).sequence == first
    status = await refused(world, request_of(start_sequence=9), metadata={"x-tailrace-subscription": name})
    assert dict(status.trailing) == {"x-tailrace-requested": "9", "x-tailrace-head": "3"}
    assert world.service.subscriptions() == [world.service.subscription(kept.id).record]


async def test_a_subscription_of_another_interface_is_streamed_with_the_cursor_of_both(world):
    made = await world.feeds.subscribe(ops=[Op.INSERT], auto_ack=True)
    await world.feeds.append(Op.INSERT, Op.DELETE, Op.INSERT)
    for name in ("sub-1", "sub_0000000000000001"):
        async with world.stream(request_of(namespace="app"), {"x-tailrace-subscription": name}) as stream:
            if name == "sub-1":
                assert [event.sequence for event in await stream.events(2)] == [1, 3]
                await until(
                    lambda: world.service.subscription(made.id).record.cursor == 3, "what was sent is acknowledged"
                )
            await stream.begun()
            (info,) = await world.list()
            assert list(info.tables) == ["users"]


@pytest.mark.parametrize(
    ("fields", "name", "code"),
    [
        ({}, "sub-7", StatusCode.NOT_FOUND),
        ({}, "seven", StatusCode.NOT_FOUND),
        ({"tables": ["users"]}, "sub-1", StatusCode.INVALID_ARGUMENT),
        ({"operations": [1]}, "sub-1", StatusCode.INVALID_ARGUMENT),
        ({"where_predicate": "id = 1"}, "sub-1", StatusCode.INVALID_ARGUMENT),
        ({"namespace": "other"}, "sub-1", StatusCode.NOT_FOUND),
    ],
)
async def test_a_named_subscription_must_be_there_and_says_itself_what_it_is_for(world, fields, name, code):
    await world.feeds.subscribe()
    assert (await refused(world, request_of(**fields), metadata={"x-tailrace-subscription": name})).code is code


@pytest.mark.parametrize("name", ["x-tailrace-keep", "x-tailrace-auto-ack"])
async def test_metadata_that_say_neither_yes_nor_no_are_refused(world, name):
    await world.feeds.subscribe()
    for more in ({}, {"x-tailrace-subscription": "sub-1"}):
        assert (await refused(world, metadata={name: "perhaps", **more})).code is StatusCode.INVALID_ARGUMENT


async def test_an_existing_subscription_is_kept_and_acknowledges_as_the_stream_asks(world):
    made = await world.feeds.subscribe(auto_ack=True)
    named = {"x-tailrace-subscription": "sub-1"}
    assert (await refused(world, metadata=named | {"x-tailrace-keep": "false"})).code is StatusCode.INVALID_ARGUMENT
    await world.feeds.append(*[Op.INSERT] * 2)
    async with world.stream(request_of(), named | {"x-tailrace-auto-ack": "false"}) as stream:
        assert [event.sequence for event in await stream.events(2)] == [1, 2]
        await world.feeds.append(Op.INSERT)
        assert (await stream.event()).sequence == 3  # the stream had its turn after the first two
        assert world.service.subscription(made.id).record.cursor == 0
    async with world.stream(request_of(), named | {"x-tailrace-keep": "true"}) as stream:
        assert len(await stream.events(3)) == 3
        await until(lambda: world.service.subscription(made.id).record.cursor == 3, "what was sent is acknowledged")


async def test_a_paused_subscription_streams_again_when_it_is_resumed(world):
    async with world.stream() as stream:
        await stream.begun()
        await world.service.subscription(1).pause()
        await world.feeds.append(Op.INSERT)
        await world.service.subscription(1).resume()
        assert (await stream.event()).sequence == 1


async def test_a_client_that_does_not_read_holds_nobody_up(world):
    async with world.stream() as slow, world.stream() as quick:
        await slow.begun()
        await quick.begun()
        slow.call.hold()
        await world.feeds.append(*[Op.INSERT] * 3)
        assert len(await quick.events(3)) == 3
        slow.call.release()
        assert len(await slow.events(3)) == 3


async def test_streams_end_when_the_server_stops(world):
    async with world.stream() as stream:
        await stream.begun()
        world.service.stop()
        with pytest.raises(StatusError) as caught:
            await stream.ended()
    assert (caught.value.code, caught.value.message) == (StatusCode.UNAVAILABLE, "CDC engine shut down")
    assert (await refused(world)).code is StatusCode.UNAVAILABLE


async def test_where_nothing_is_captured_streams_say_so():
    async with feeding(capture_enabled=False) as feeds:
        world = World(feeds)
        for method, request in (("Subscribe", request_of()), ("WatchKey", proto.WatchKeyRequest())):
            status = await refused(world, request, method=method)
            assert (status.code, status.message) == (StatusCode.FAILED_PRECONDITION, "CDC not enabled")
        assert await world.list() == []


async def test_subscriptions_that_a_crash_left_behind_are_gone_after_the_start(tmp_path):
    url = f"sqlite:///{tmp_path}/meta.db"
    async with feeding(url) as feeds:
        for transient in (True, False):
            await feeds.service.subscribe(
                SubscribeRequest(
                    SourceTarget("app"),
                    filter=FilterOptions(tuple(Op)),
                    include=Include(),
                    format=Format.OBJECTS_JSON,
                    transient=transient,
                )
            )
    async with feeding(url) as feeds:
        assert [subscription.id for subscription in feeds.service.subscriptions()] == [2]


async def test_watching_a_key_shows_its_changes_and_no_others(world):
    await world.feeds.append(Op.INSERT)
    request = proto.WatchKeyRequest(namespace="app", table="users", key=b"[7]")
    async with world.stream(request, method="WatchKey") as stream:
        assert await stream.begun() is None
        await world.feeds.write((Op.INSERT, 1, None, "Ada"), (Op.INSERT, 7, None, "Bob"), (Op.INSERT, 70, None, "Eve"))
        await world.feeds.append(Op.SCHEMA)
        await world.feeds.write((Op.DELETE, 7, "Bob", None))
        inserted, deleted = await stream.events(2)
        assert (inserted.sequence, inserted.operation, inserted.after_value) == (3, 1, b'{"id":7,"name":"Bob"}')
        assert (deleted.operation, deleted.before_value) == (3, b'{"id":7,"name":"Bob"}')
        assert (await world.list(), world.service.subscriptions()) == ([], [])


async def test_watching_without_a_table_or_a_key_means_any(world):
    named = schema_of("named", columns=(Column("name", Kind.STR),), key=("name",))
    named_id = await world.log.put_schema(named)
    async with (
        world.stream(proto.WatchKeyRequest(key=b"k"), method="WatchKey") as by_key,
        world.stream(proto.WatchKeyRequest(table="users"), method="WatchKey") as by_table,
        world.stream(proto.WatchKeyRequest(), method="WatchKey") as everything,
    ):
        for stream in (by_key, by_table, everything):
            await stream.begun()
        await world.feeds.append(Op.INSERT)
        await world.log.append([world.feeds.draft(named_id, [b'["k"]', b'["other"]'])])
        assert (await by_key.event()).sequence == 2
        assert (await by_table.event()).sequence == 1
        assert [event.sequence for event in await everything.events(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("Subscribe", b"\xff\xff"),
        ("Subscribe", b"\x0a\x05ab"),
        ("WatchKey", b"\xff"),
        ("Subscribe", request_of(tables=[str(n) for n in range(2000)]).SerializeToString()),
        ("Subscribe", request_of(tables=["x" * 1000]).SerializeToString()),
        ("Subscribe", request_of(tables=[""]).SerializeToString()),
        ("WatchKey", proto.WatchKeyRequest(key=bytes(1 << 17)).SerializeToString()),
    ],
)
async def test_requests_that_are_none_or_too_large_are_refused(world, method, message):
    assert (await refused(world, message, method=method)).code is StatusCode.INVALID_ARGUMENT
    assert (world.service.subscriptions(), world.service.feeds_open()) == ([], 0)


@pytest.mark.parametrize("method", ["ListSubscriptions", "CancelSubscription"])
async def test_unary_requests_that_are_none_are_refused(world, method):
    with pytest.raises(StatusError) as caught:
        await world.unary(method, b"\xff", proto.ListSubscriptionsResponse)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_a_query_or_a_snapshot_is_not_for_this_interface(world):
    made = await world.feeds.subscribe()
    world.service.subscription(made.id)._changed(snapshot=True)
    status = await refused(world, metadata={"x-tailrace-subscription": "sub-1"})
    assert (status.code, "snapshot" in status.message) == (StatusCode.INVALID_ARGUMENT, True)


async def test_what_streams_carry_is_counted(world):
    async with world.stream() as stream:
        await stream.begun()
        await world.feeds.append(*[Op.INSERT] * 3)
        await stream.events(3)
        assert world.metrics.registry.get_sample_value("tailrace_feeds_open", {"wire": "sochdb"}) == 1
    assert world.metrics.registry.get_sample_value("tailrace_delivered_changes_total", {"wire": "sochdb"}) == 3
    assert world.metrics.registry.get_sample_value("tailrace_feeds_open", {"wire": "sochdb"}) == 0
