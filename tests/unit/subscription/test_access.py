"""Facts about the service as a principal may use it."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from feeding import feeding, schema_of
from tailrace.access.keeper import Keeper
from tailrace.access.keys import Keys
from tailrace.access.principal import ANONYMOUS, Principal
from tailrace.meta.key_store import KeyStore
from tailrace.meta.store import MetaStore
from tailrace.model.errors import (
    PermissionDeniedError,
    QuotaError,
    UnauthenticatedError,
    UnknownSubscriptionError,
    UnknownTableError,
)
from tailrace.model.op import Op
from tailrace.model.start import Earliest, Latest
from tailrace.model.subscription import (
    FilterOptions,
    Format,
    Include,
    SourceTarget,
    SubscribeRequest,
    SubscriptionDraft,
    TableTarget,
)
from tailrace.model.table import TableName
from tailrace.subscription.access import Scopes
from tailrace.subscription.service import ServiceOptions, SubscriptionService
from tailrace.testing.clock import FakeClock
from tailrace.testing.log import MemoryLog

ROW_OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)
READ = frozenset({"read"})
USERS, OTHERS = TableName("app", "users"), TableName("app", "others")

ALICE = Principal("alice", capabilities=READ)
BOB = Principal("bob", capabilities=READ)
ADMIN = Principal("root", capabilities=frozenset({"admin"}))
ELSEWHERE = Principal("eve", tenant="acme", capabilities=READ, namespaces=frozenset({"acme"}))
OF_USERS = Principal("ulla", capabilities=READ, namespaces=frozenset({"app"}), tables=frozenset({"app.users"}))
OF_OTHERS = Principal("otto", capabilities=READ, namespaces=frozenset({"app"}), tables=frozenset({"app.others"}))
MINE = Principal("mia", capabilities=READ, rows={"app.users": "name = 'mine'"})
NOBODY = Principal("nemo")


class World:
    def __init__(self, world, scopes, clock):
        self.world, self.scopes, self.clock = world, scopes, clock

    def of(self, principal):
        return self.scopes.of(principal)

    async def subscribe(self, principal, table=USERS, ops=ROW_OPS, **filters):
        return await self.of(principal).subscribe(
            SubscribeRequest(
                TableTarget((table,)),
                filter=FilterOptions(tuple(ops), **filters),
                include=Include(before=True, after=True),
                format=Format.PLAIN_JSON,
            )
        )

    async def subscribe_source(self, principal, *names):
        return await self.of(principal).subscribe(
            SubscribeRequest(
                SourceTarget("app", names), filter=FilterOptions(ROW_OPS), include=Include(), format=Format.PLAIN_JSON
            )
        )


@pytest.fixture
async def world():
    async with scoped() as made:
        yield made


@asynccontextmanager
async def scoped(held_max=100, **options):
    clock = FakeClock()
    meta = await MetaStore.open("sqlite://", clock)
    try:
        keeper = Keeper(Keys({}, KeyStore(meta, clock), "", clock), clock, held_max)
        async with feeding() as inner:
            await inner.log.put_schema(schema_of("others"))
            yield World(inner, Scopes(inner.service, keeper, **options), clock)
    finally:
        await meta.close()


async def read(feed, timeout_s=0.0):
    """Take the next batch whole; return op, key and images of what passes."""
    batch = await feed.next(timeout_s)
    if batch is None:
        return None
    feed.advance(batch.chunk.last)
    columns = [batch.chunk.batch.column(name).to_pylist() for name in ("op", "key", "before", "after")]
    return [tuple(column[row] for column in columns) for row in batch.rows()]


# ---- rights to tables


@pytest.mark.parametrize(
    ("principal", "table", "refusal"),
    [
        (ALICE, USERS, None),
        (OF_USERS, USERS, None),
        (MINE, USERS, None),
        (ANONYMOUS, USERS, None),
        (OF_USERS, OTHERS, "Access denied to table 'app.others' for tenant 'default'"),
        (ELSEWHERE, USERS, "Access denied to namespace 'app' for tenant 'acme'"),
        (NOBODY, USERS, "Insufficient permissions. Required: Read, principal: nemo"),
    ],
    ids=lambda value: getattr(value, "id", None) or str(value),
)
async def test_a_principal_subscribes_to_what_it_may_see(world, principal, table, refusal):
    if refusal is None:
        assert (await world.subscribe(principal, table)).owner == principal.owner
        assert world.of(principal).table("app", table.name).table == table
        return
    with pytest.raises(PermissionDeniedError) as caught:
        await world.subscribe(principal, table)
    assert str(caught.value) == refusal
    with pytest.raises(PermissionDeniedError):
        world.of(principal).table("app", table.name)


@pytest.mark.parametrize("table", ["others", "absent", "sales.others"])
async def test_a_table_that_may_not_be_seen_is_refused_whether_or_not_it_is_there(world, table):
    with pytest.raises(PermissionDeniedError, match="Access denied to table"):
        world.of(OF_USERS).table("app", table)
    with pytest.raises(PermissionDeniedError, match="Access denied to namespace 'absent'"):
        world.of(OF_USERS).table("absent", table)


async def test_a_table_that_is_not_there_is_unknown_to_who_may_see_all(world):
    with pytest.raises(UnknownTableError):
        world.of(ALICE).table("app", "absent")


async def test_only_sources_that_are_reached_have_logs(world):
    assert set(world.of(ALICE).logs) == {"app"}
    assert set(world.of(ELSEWHERE).logs) == set()


# ---- whose a subscription is

USES = [
    (ALICE, ALICE, True),
    (ALICE, BOB, False),
    (ALICE, ADMIN, True),
    (ALICE, ANONYMOUS, True),
    (ALICE, Principal("alice", tenant="acme", capabilities=READ), False),
    (ANONYMOUS, BOB, True),
    (ANONYMOUS, OF_USERS, True),
    (ANONYMOUS, OF_OTHERS, False),
    (ANONYMOUS, ELSEWHERE, False),
    (ALICE, Principal("alice", capabilities=READ, tables=frozenset({"app.others"})), False),
    (ALICE, Principal("root", capabilities=frozenset({"admin"}), namespaces=frozenset({"acme"})), False),
]


@pytest.mark.parametrize(("maker", "user", "uses"), USES, ids=lambda value: getattr(value, "id", str(value)))
async def test_a_subscription_is_for_its_owner_and_admins_or_for_all_who_see_its_tables(world, maker, user, uses):
    made = await world.subscribe(maker)
    service = world.of(user)
    assert [found.id for found in service.subscriptions()] == ([made.id] if uses else [])
    calls = [
        lambda: service.subscription(made.id).acknowledge(0),
        lambda: service.subscription(made.id).pause(),
        lambda: service.subscription(made.id).resume(),
        lambda: service.subscription(made.id).reset(Latest()),
        lambda: service.subscription(made.id).snapshot_sent(None),
        lambda: asyncio.to_thread(lambda: service.subscription(made.id).status()),
        lambda: asyncio.to_thread(service.feed, made.id, Latest()),
        lambda: service.subscription(made.id).close(),
    ]
    for call in calls:
        if uses:
            await call()
        else:
            with pytest.raises(UnknownSubscriptionError):
                await call()


async def test_open_feeds_are_shown_to_who_may_use_their_subscriptions(world):
    made = await world.subscribe(ALICE)
    with world.of(ALICE).feed(made.id, Latest()):
        assert len(list(world.of(ALICE).feeds())) == len(list(world.of(ADMIN).feeds())) == 1
        assert list(world.of(BOB).feeds()) == []


async def test_whoever_may_do_nothing_may_not_even_list(world):
    for call in (world.of(NOBODY).subscriptions, world.of(NOBODY).feeds, lambda: world.of(NOBODY).subscription(1)):
        with pytest.raises(PermissionDeniedError, match="Required: Read"):
            call()


async def test_a_subscription_to_a_whole_source_shows_the_tables_that_are_seen(world):
    made = await world.subscribe_source(OF_USERS)
    others = await world.world.log.put_schema(schema_of("others"))
    await world.world.append(Op.INSERT, schema=others)
    await world.world.append(Op.INSERT)
    with world.of(OF_USERS).feed(made.id, Earliest()) as feed:
        assert await read(feed) == []
        assert [change[0] for change in await read(feed)] == [Op.INSERT]
    unowned = await world.subscribe_source(ANONYMOUS)
    assert {found.id for found in world.of(ALICE).subscriptions()} == {unowned.id}
    assert {found.id for found in world.of(OF_USERS).subscriptions()} == {made.id}
    with pytest.raises(PermissionDeniedError):
        await world.subscribe_source(OF_USERS, "others")
    with pytest.raises(PermissionDeniedError):
        world.of(OF_USERS).feed_of_source(SourceTarget("app", ("others",)), FilterOptions(ROW_OPS))


# ---- row security in feeds


async def test_a_feed_shows_what_its_reader_may_see_whoever_made_the_subscription(world):
    made = await world.subscribe(ANONYMOUS)
    await world.world.write((Op.UPDATE, 1, "other", "mine"), (Op.UPDATE, 2, "other", "else"))
    with world.of(MINE).feed(made.id, Earliest()) as feed:
        assert await read(feed) == [(Op.INSERT, b"[1]", None, b'{"id":1,"name":"mine"}')]
    with world.of(ALICE).feed(made.id, Earliest()) as feed:
        assert [change[0] for change in await read(feed)] == [Op.UPDATE, Op.UPDATE]


@pytest.mark.parametrize(
    ("ops", "names", "expected"),
    [
        ([Op.INSERT], ("other", "mine"), [Op.INSERT]),
        ([Op.DELETE], ("mine", "other"), [Op.DELETE]),
        ([Op.UPDATE], ("other", "mine"), []),
        ([Op.UPDATE], ("mine", "mine"), [Op.UPDATE]),
    ],
)
async def test_a_waiting_feed_misses_no_change_that_crosses_the_border(world, ops, names, expected):
    made = await world.subscribe(MINE, ops=ops)
    with world.of(MINE).feed(made.id, Latest()) as feed:
        assert await read(feed) is None
        waiting = asyncio.create_task(read(feed, 30))
        for _ in range(10):
            await asyncio.sleep(0)
        assert feed._watch.since is not None, "somebody else evaluates what comes"
        await world.world.write((Op.UPDATE, 1, *names))
        assert [change[0] for change in await waiting] == expected


@pytest.mark.parametrize(
    "filters",
    [
        {"where": "before.name IS NULL AND after.name = 'mine'"},
        {"where": "op = 'insert'"},
        {"cel": "before == null && after.name == 'mine'"},
        {"columns": ("id",)},
    ],
    ids=str,
)
async def test_the_filter_of_a_subscription_looks_at_what_may_be_seen_alone(world, filters):
    made = await world.subscribe(MINE, **filters)
    await world.world.write((Op.DELETE, 3, "other", None), (Op.UPDATE, 1, "other", "mine"), (Op.INSERT, 2, None, "x"))
    with world.of(MINE).feed(made.id, Earliest()) as feed:
        assert [(change[0], change[1]) for change in await read(feed)] == [(Op.INSERT, b"[1]")]


async def test_a_predicate_that_no_longer_fits_ends_the_feed_of_who_has_it(world):
    made = await world.subscribe(ANONYMOUS)
    await world.world.append(Op.INSERT)
    lost = Principal("p", capabilities=READ, rows={"app.users": "gone = 1"})
    with world.of(lost).feed(made.id, Earliest()) as feed, pytest.raises(PermissionDeniedError, match="cannot be"):
        await feed.next(0)
    with world.of(ALICE).feed(made.id, Earliest()) as feed:
        assert len(await read(feed)) == 1


# ---- credentials and limits


async def test_a_feed_ends_when_the_credentials_of_its_reader_do(world):
    made = await world.subscribe(ANONYMOUS)
    short = Principal("p", capabilities=READ, expires_time_us=world.clock.now_us() + 1_000_000)
    with world.of(short).feed(made.id, Latest()) as feed, world.of(ALICE).feed(made.id, Latest()) as other:
        waiting = asyncio.create_task(feed.next(30))
        await asyncio.sleep(0)
        world.clock.advance(2)
        await world.scopes.keeper.look()
        with pytest.raises(UnauthenticatedError, match="expired"):
            await waiting
        assert await other.next(0) is None
    assert len(world.scopes.keeper) == 0


async def test_copies_count_like_subscriptions_that_are_made():
    async with scoped(subscriptions_max=2) as world:
        keeps = Principal("keeps", capabilities=frozenset({"read", "manage_backups", "admin"}))
        own = await world.subscribe(keeps)
        draft = SubscriptionDraft("app", TableTarget((USERS,)), FilterOptions(ROW_OPS), Include(), Format.PLAIN_JSON, 0)
        with pytest.raises(QuotaError):
            await world.of(keeps).restore({98: draft, 99: draft})
        await world.of(keeps).restore({own.id: draft, 99: draft})


async def test_a_principal_has_a_bounded_number_of_feeds_and_subscriptions():
    async with scoped(held_max=1, subscriptions_max=2) as world:
        made = await world.subscribe(ALICE)
        with world.of(ALICE).feed(made.id, Latest()):
            with pytest.raises(QuotaError), world.of(ALICE).feed(made.id, Latest()):
                pass
            assert world.world.service.feeds_open() == 1
        await world.subscribe(ALICE)
        with pytest.raises(QuotaError, match="alice has 2 subscriptions"):
            await world.subscribe(ALICE)
        await world.subscribe(BOB)
        for _ in range(3):
            await world.subscribe(ANONYMOUS)


# ---- what needs more than reading


async def test_figures_and_copies_need_their_capabilities(world):
    await world.subscribe(ALICE)
    for call in (world.of(ALICE).exported, world.of(ALICE).measured):
        with pytest.raises(PermissionDeniedError, match="Insufficient"):
            call()
    with pytest.raises(PermissionDeniedError, match="ManageBackups"):
        await world.of(ALICE).restore({})
    assert len(world.of(ADMIN).exported()) == 1
    assert world.of(ADMIN).measured() is world.world.service


async def test_a_copy_takes_no_subscription_from_somebody_else_and_shows_no_other_table(world):
    keeps = Principal("kim", capabilities=frozenset({"read", "manage_backups"}), tables=frozenset({"app.users"}))
    theirs, own = await world.subscribe(ALICE), await world.subscribe(keeps)

    def draft(table):
        return SubscriptionDraft("app", TableTarget((table,)), FilterOptions(ROW_OPS), Include(), Format.PLAIN_JSON, 0)

    with pytest.raises(PermissionDeniedError):
        await world.of(keeps).restore({own.id: draft(OTHERS)})
    await world.of(keeps).restore({own.id: draft(USERS)})
    refusals = []
    for number in (theirs.id, 99):
        with pytest.raises(PermissionDeniedError, match="admin") as refused:
            await world.of(keeps).restore({number: draft(USERS)})
        refusals.append(str(refused.value).replace(str(number), "N"))
    assert refusals[0] == refusals[1], "a number that is free and one that another principal has are refused alike"
    await world.of(ADMIN).restore({99: draft(USERS)})
    assert [(found.id, found.owner) for found in world.of(keeps).subscriptions()] == [(own.id, "kim")]


async def test_default_is_the_source_of_that_name_though_the_caller_reaches_another_alone():
    logs = {name: MemoryLog() for name in ("default", "app")}
    meta = await MetaStore.open("sqlite://", FakeClock())
    try:
        service = await SubscriptionService.open(logs, meta, ServiceOptions())
        only_app = Scopes(service).of(OF_USERS)
        assert only_app.source("app") == "app"
        for namespace in ("", "default"):
            with pytest.raises(PermissionDeniedError, match="'default'"):
                only_app.source(namespace)
    finally:
        await meta.close()
