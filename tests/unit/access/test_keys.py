"""Facts about the keys that the server knows, and about what ends with them."""

import pytest

from signing import NOW_S, SECRET, hs256
from tailrace.access.access import open_access
from tailrace.access.gate import TokenGate
from tailrace.access.keeper import Keeper
from tailrace.access.key import key_hash, make_key
from tailrace.access.keys import Keys
from tailrace.access.limit import RateLimits
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.access.principal import ANONYMOUS, Principal
from tailrace.access.web_token import WebTokenOptions, WebTokens
from tailrace.meta.key_store import KeyStore
from tailrace.meta.store import MetaStore
from tailrace.model.errors import ConfigError, QuotaError, RateLimitError, UnauthenticatedError
from tailrace.testing.clock import FakeClock

FIXED = Principal("fixed", capabilities=frozenset({"read"}))


@pytest.fixture
def clock():
    return FakeClock(now_us=NOW_S * 1_000_000)


@pytest.fixture
async def store(clock):
    meta = await MetaStore.open("sqlite://", clock)
    yield KeyStore(meta, clock)
    await meta.close()


@pytest.fixture
def keys(store, clock):
    return Keys({"fixed key": FIXED, "a.b.c": FIXED}, store, "", clock)


@pytest.fixture
def gate(keys, clock):
    return TokenGate(keys, WebTokens(WebTokenOptions(SECRET), clock), RateLimits(1000, 1000, clock), clock)


async def add(store, grant="{}", expires_time_us=None, pepper="", name="bob"):
    token = make_key()
    return token, await store.add(key_hash(token, pepper), name, grant, expires_time_us)


async def refusal(gate, token):
    with pytest.raises(UnauthenticatedError) as caught:
        await gate.admit(token)
    return caught.value.expired


async def test_a_key_made_while_the_server_runs_is_good_at_once(gate, store):
    token, stored = await add(store, '{"tenant":"acme","capabilities":["write"]}')
    principal = await gate.admit(token)
    assert (principal.id, principal.tenant, principal.credential) == ("bob", "acme", f"key-{stored.id}")
    assert principal.capabilities == {"write"}
    assert principal.namespaces == {"acme", "default"}


async def test_a_revoked_key_is_refused_after_the_next_look(gate, keys, store):
    token, stored = await add(store)
    await keys.refresh()
    await gate.admit(token)
    await store.remove(stored.id)
    assert await keys.refresh() == {f"key-{stored.id}"}
    assert await refusal(gate, token) is False


async def test_a_key_that_comes_and_goes_between_two_looks_does_not_stay(gate, keys, store):
    await add(store)
    await keys.refresh()
    token, stored = await add(store)
    await gate.admit(token)
    await store.remove(stored.id)
    assert await keys.refresh() == {f"key-{stored.id}"}
    assert await refusal(gate, token) is False


async def test_an_expired_key_is_refused_as_such(gate, store, clock):
    token, _ = await add(store, expires_time_us=clock.now_us() + 1_000_000)
    await gate.admit(token)
    clock.advance(1)
    assert await refusal(gate, token) is True


async def test_a_key_is_looked_up_before_a_web_token_is_read(gate):
    assert await gate.admit("a.b.c") == FIXED
    assert (await gate.admit(hs256())).id == "alice"
    assert await refusal(gate, "a.b.d") is False


@pytest.mark.parametrize(
    "token", [None, "unknown", "fixed key ", pytest.param(make_key(), id="a new one"), "ü", "\udcff"]
)
async def test_who_brings_no_good_token_stays_out(gate, token):
    assert await refusal(gate, token) is False


async def test_with_a_pepper_the_same_key_has_another_hash(store, clock):
    token, _ = await add(store, pepper="pepper")
    assert await Keys({}, store, "pepper", clock).find(token) is not None
    assert await Keys({}, store, "", clock).find(token) is None


@pytest.mark.parametrize("grant", ["", "[]", '{"colour":1}', '{"tables":["x"]}', '{"role":"king"}'])
async def test_a_stored_key_that_cannot_be_read_admits_nobody(gate, keys, store, grant):
    token, _ = await add(store, grant)
    assert await refusal(gate, token) is False
    await keys.refresh()
    assert await refusal(gate, token) is False


async def test_strangers_cannot_have_the_database_searched_without_end(gate):
    for _ in range(50):
        assert await refusal(gate, make_key()) is False
    with pytest.raises(RateLimitError):
        await gate.admit(make_key())
    assert await gate.admit("fixed key") == FIXED


async def test_a_principal_that_calls_too_often_is_told_when_to_come_again(keys, clock):
    gate = TokenGate(keys, None, RateLimits(10, 1, clock), clock)
    await gate.admit("fixed key")
    with pytest.raises(RateLimitError, match="Retry after 100ms"):
        await gate.admit("fixed key")


# ---- the keeper


async def test_what_is_open_ends_when_its_key_is_revoked_and_nothing_else_does(gate, keys, store, clock):
    keeper, ended = Keeper(keys, clock, 10), []
    (token, stored), (other, _) = await add(store), await add(store)
    await keeper.look()
    with (
        keeper.hold(await gate.admit(token), lambda reason: ended.append(("first", reason))),
        keeper.hold(await gate.admit(token), lambda reason: ended.append(("second", reason))),
        keeper.hold(await gate.admit(other), lambda reason: ended.append(("other", reason))),
        keeper.hold(FIXED, lambda reason: ended.append(("fixed", reason))),
    ):
        await keeper.look()
        assert ended == []
        await store.remove(stored.id)
        await keeper.look()
        assert {name for name, _ in ended} == {"first", "second"}
        assert not any(reason.expired for _, reason in ended)
    assert len(keeper) == 0


async def test_what_is_open_ends_when_its_time_is_up(gate, keys, clock):
    keeper, ended = Keeper(keys, clock, 10), []
    with (
        keeper.hold(await gate.admit(hs256(exp=NOW_S + 10)), lambda reason: ended.append(("short", reason))),
        keeper.hold(await gate.admit(hs256(exp=NOW_S + 100)), lambda reason: ended.append(("long", reason))),
    ):
        clock.advance(69)
        await keeper.look()
        assert ended == []
        clock.advance(1)
        await keeper.look()
        assert [name for name, _ in ended] == ["short"]
        assert ended[0][1].expired
        clock.advance(1000)
        await keeper.look()
        assert [name for name, _ in ended] == ["short", "long"]


async def test_what_was_closed_is_not_ended_and_costs_nothing(gate, keys, clock):
    keeper, ended = Keeper(keys, clock, 10), []
    for number in range(200):
        with keeper.hold(Principal("p", expires_time_us=clock.now_us() + number + 1), ended.append):
            pass
    assert len(keeper._due) <= 64
    clock.advance(1)
    await keeper.look()
    assert ended == []


def test_a_principal_has_a_bounded_number_of_things_open(keys, clock):
    keeper = Keeper(keys, clock, 2)
    with keeper.hold(FIXED, print), keeper.hold(FIXED, print):
        with pytest.raises(QuotaError, match="fixed"), keeper.hold(FIXED, print):
            pass
        with keeper.hold(ANONYMOUS, print):
            pass
    with keeper.hold(FIXED, print):
        pass


# ---- joined by a configuration


async def test_without_authentication_everybody_is_anonymous_whatever_they_bring(store, clock):
    gate = open_access(AuthConfig(), store, clock).gate
    assert await gate.admit(None) == await gate.admit("anything") == ANONYMOUS


async def test_the_configuration_says_which_keys_there_are(store, clock, tmp_path):
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    config = AuthConfig(
        enabled=True,
        tokens=("master",),
        principals={"reports": PrincipalConfig(tokens=("r1", "r2"), tenant="acme", rows={"shop.orders": "id = 1"})},
        jwt_secret_file=str(tmp_path / "secret"),
    )
    gate = open_access(config, store, clock).gate
    master = await gate.admit("master")
    assert master.id == f"apikey-{key_hash('master', '')[:8]}"
    assert master.sees_all
    assert "admin" in master.capabilities
    reports = await gate.admit("r2")
    assert (reports.id, reports.tenant, reports.rows) == ("reports", "acme", {"shop.orders": "id = 1"})
    assert (await gate.admit(hs256())).id == "alice"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (AuthConfig(enabled=True, principals={"x": PrincipalConfig(tokens=("a",), role="king")}), "principals.x"),
        (AuthConfig(enabled=True, tokens=("a",), principals={"x": PrincipalConfig(tokens=("a",))}), "principals.x"),
        (AuthConfig(enabled=True, principals={"x": PrincipalConfig(tokens=("",))}), "principals.x"),
        (AuthConfig(enabled=True, jwt_secret="x" * 32, jwt_secret_file="y"), "one of the two"),
        (AuthConfig(enabled=True, jwt_secret_file="/nowhere"), "jwt_secret_file"),
        (AuthConfig(enabled=True, jwks_file="/nowhere"), "jwks_file"),
        (AuthConfig(enabled=True, jwt_secret="short"), "jwt_secret"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(store, clock, config, named):
    with pytest.raises(ConfigError, match=named):
        open_access(config, store, clock)


async def test_nothing_is_opened_on_a_key_that_was_revoked_after_it_was_admitted(keys, store, clock):
    token, stored = await add(store)
    principal = await keys.find(token)
    keeper = Keeper(keys, clock, held_max=10)
    await store.remove(stored.id)
    await keeper.look()
    with pytest.raises(UnauthenticatedError), keeper.hold(principal, lambda reason: None):
        pass
    assert len(keeper) == 0


class Between:
    """A store of keys in which something happens before it tells of all keys."""

    def __init__(self, store):
        self._store = store
        self.version, self.find = store.version, store.find
        self.happens = None

    async def keys(self):
        told = await self._store.keys()
        if self.happens is not None:
            await self.happens()
        return told


async def test_a_key_that_is_found_while_the_database_tells_of_all_is_not_taken_for_revoked(store, clock):
    between = Between(store)
    keys = Keys({}, between, "", clock)
    await add(store)
    made = []

    async def happens():
        between.happens = None
        made.extend(await add(store))
        assert await keys.find(made[0]) is not None

    between.happens = happens
    assert await keys.refresh() == frozenset()
    assert keys.admits(f"key-{made[1].id}")
    await store.remove(made[1].id)
    assert await keys.refresh() == {f"key-{made[1].id}"}
