"""Facts about the gate of gRPC."""

import pytest

from signing import NOW_S, SECRET, hs256
from tailrace.access.options import AuthConfig
from tailrace.access.principal import ANONYMOUS
from tailrace.delivery.grpc.dispatch import GrpcGate
from tailrace.model.errors import QuotaError, UnauthenticatedError
from tailrace.testing.clock import FakeClock
from web import access_of

PATH = "/sochdb.v1.SubscriptionService/Subscribe"


@pytest.fixture
async def gate():
    config = AuthConfig(enabled=True, tokens=("key",), jwt_secret=SECRET.decode())
    async with access_of(config, FakeClock(now_us=NOW_S * 1_000_000)) as access:
        yield GrpcGate(access)


@pytest.mark.parametrize(
    "metadata",
    [
        [("authorization", "Bearer key")],
        [("x-api-key", "key")],
        [("user-agent", "x"), ("authorization", "Bearer key"), ("x-api-key", "wrong")],
        [("authorization", f"Bearer {hs256()}")],
        [("x-api-key", hs256())],
    ],
    ids=lambda value: str(value)[:50],
)
async def test_a_call_is_admitted_by_its_metadata(gate, metadata):
    assert (await gate(PATH, metadata)).id in {"alice", "apikey-2c70e12b"}


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        [("authorization", "Bearer wrong"), ("x-api-key", "key")],
        [("authorization", "Bearer wrong"), ("authorization", "Bearer key")],
        [("authorization-bin", b"Bearer key")],
        [("authorization", "bearer key")],
    ],
    ids=str,
)
async def test_a_call_without_good_credentials_is_not(gate, metadata):
    with pytest.raises(UnauthenticatedError):
        await gate(PATH, metadata)


async def test_a_call_ends_with_the_credentials_that_it_came_with():
    clock = FakeClock(now_us=NOW_S * 1_000_000)
    config = AuthConfig(enabled=True, jwt_secret=SECRET.decode(), streams_max=1)
    async with access_of(config, clock) as access:
        gate, ended = GrpcGate(access), []
        principal = await gate(PATH, [("x-api-key", hs256(exp=NOW_S + 5))])
        uncounted = gate.watch(principal, ended.append, counted=False)
        with gate.watch(principal, ended.append, counted=True), uncounted:
            with pytest.raises(QuotaError), gate.watch(principal, ended.append, counted=True):
                pass
            clock.advance(5)
            await access.keeper.look()
        assert [reason.expired for reason in ended] == [True, True]


async def test_without_authentication_everybody_is_anonymous():
    async with access_of(AuthConfig(), FakeClock()) as access:
        assert await GrpcGate(access)(PATH, [("authorization", "anything")]) is ANONYMOUS
