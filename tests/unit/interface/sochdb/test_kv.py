"""`sochdb.v1.KvService`, called without a server."""

import pytest

from tailrace.access.key_value import KeyValues
from tailrace.access.principal import ANONYMOUS, Capability, Principal
from tailrace.delivery.grpc.call import StatusCode, StatusError
from tailrace.delivery.grpc.proto import sochdb_pb2 as proto
from tailrace.delivery.grpc.status import status_of
from tailrace.interface.sochdb.kv import kv_service
from tailrace.model.errors import TailraceError
from tailrace.testing.call import MemoryCall, messages_of
from tailrace.testing.clock import FakeClock
from tailrace.testing.key_value import MemoryKeyValueStore

ANSWERS = {
    "Get": proto.KvGetResponse,
    "Put": proto.KvPutResponse,
    "Delete": proto.KvDeleteResponse,
    "BatchGet": proto.KvBatchGetResponse,
    "BatchPut": proto.KvBatchPutResponse,
}


class Server:
    def __init__(self):
        self.clock = FakeClock()
        stores = {"default": MemoryKeyValueStore(self.clock), "other": MemoryKeyValueStore(self.clock), "lake": None}
        self.methods = kv_service(KeyValues(stores)).methods

    async def call(self, method, request, principal=ANONYMOUS):
        """Call a method as the server does: an error of ours becomes a status."""
        try:
            return await self._call(method, request, principal)
        except TailraceError as error:
            raise status_of(error) from error

    async def _call(self, method, request, principal):
        data = request if isinstance(request, bytes) else request.SerializeToString()
        if method == "Scan":
            call = MemoryCall(principal=principal)
            await self.methods[method].stream(call, data)
            return [[entry_of(message) for message in messages_of(write)] for write in call.writes]
        return ANSWERS[method].FromString(await self.methods[method].unary(MemoryCall(principal=principal), data))


def entry_of(message):
    entry = proto.KvScanResponse.FromString(message)
    return entry.key, entry.value


@pytest.fixture
def server():
    return Server()


async def test_what_is_put_can_be_got_and_deleted(server):
    answer = await server.call("Put", proto.KvPutRequest(namespace="default", key=b"k", value=b"\x00v"))
    assert (answer.success, answer.error) == (True, "")
    answer = await server.call("Get", proto.KvGetRequest(namespace="default", key=b"k"))
    assert (answer.value, answer.found, answer.error) == (b"\x00v", True, "")
    assert (await server.call("Delete", proto.KvDeleteRequest(key=b"k"))).success
    answer = await server.call("Delete", proto.KvDeleteRequest(key=b"k"))
    assert (answer.success, answer.error) == (False, "")
    answer = await server.call("Get", proto.KvGetRequest(key=b"k"))
    assert (answer.value, answer.found) == (b"", False)


async def test_an_empty_value_is_found(server):
    await server.call("Put", proto.KvPutRequest(key=b"k"))
    assert (await server.call("Get", proto.KvGetRequest(key=b"k"))).found


async def test_an_entry_lives_as_long_as_its_ttl(server):
    await server.call("Put", proto.KvPutRequest(key=b"k", value=b"v", ttl_seconds=5))
    entries = [proto.KvPutEntry(key=b"b", value=b"v", ttl_seconds=9)]
    await server.call("BatchPut", proto.KvBatchPutRequest(entries=entries))
    server.clock.advance(5)
    answer = await server.call("BatchGet", proto.KvBatchGetRequest(keys=[b"k", b"b"]))
    assert [entry.found for entry in answer.entries] == [False, True]


async def test_batches_keep_the_order_of_what_was_asked(server):
    entries = [proto.KvPutEntry(key=b"%d" % number, value=b"v%d" % number) for number in range(3)]
    assert (await server.call("BatchPut", proto.KvBatchPutRequest(entries=entries))).success_count == 3
    answer = await server.call("BatchGet", proto.KvBatchGetRequest(keys=[b"2", b"none", b"0"]))
    assert [(entry.key, entry.value, entry.found) for entry in answer.entries] == [
        (b"2", b"v2", True),
        (b"none", b"", False),
        (b"0", b"v0", True),
    ]


async def test_a_scan_is_ordered_and_packs_many_messages_into_one_write(server):
    entries = [proto.KvPutEntry(key=b"a%04d" % number, value=b"v") for number in range(2000)]
    await server.call("BatchPut", proto.KvBatchPutRequest(entries=[*entries, proto.KvPutEntry(key=b"b", value=b"w")]))
    writes = await server.call("Scan", proto.KvScanRequest(prefix=b"a"))
    assert len(writes) < 10
    assert [key for write in writes for key, _ in write] == [b"a%04d" % number for number in range(2000)]


@pytest.mark.parametrize(("limit", "count"), [(0, 5), (1, 1), (3, 3), (5, 5), (9, 5)])
async def test_a_scan_ends_at_its_limit(server, limit, count):
    entries = [proto.KvPutEntry(key=b"%d" % number, value=b"v") for number in range(5)]
    await server.call("BatchPut", proto.KvBatchPutRequest(entries=entries))
    assert sum(map(len, await server.call("Scan", proto.KvScanRequest(limit=limit)))) == count


async def test_namespaces_are_apart(server):
    await server.call("Put", proto.KvPutRequest(namespace="other", key=b"k", value=b"v"))
    assert not (await server.call("Get", proto.KvGetRequest(namespace="default", key=b"k"))).found
    assert (await server.call("Get", proto.KvGetRequest(namespace="other", key=b"k"))).found


READER = Principal("reader", capabilities=frozenset({Capability.READ}))
TENANT = Principal("t", tenant="a", capabilities=frozenset(Capability), namespaces=frozenset({"other"}))
TABLES = Principal("t", capabilities=frozenset(Capability), tables=frozenset({"default.orders"}))
ROWS = Principal("t", capabilities=frozenset({"read"}), rows={"default.kv": "key = x'00'"})
FEW = [proto.KvPutEntry(key=b"k", value=b"v")]


@pytest.mark.parametrize(
    ("method", "request_", "principal", "code"),
    [
        ("Get", proto.KvGetRequest(namespace="none", key=b"k"), ANONYMOUS, StatusCode.NOT_FOUND),
        ("Get", proto.KvGetRequest(namespace="lake", key=b"k"), ANONYMOUS, StatusCode.FAILED_PRECONDITION),
        ("Put", proto.KvPutRequest(namespace="lake", key=b"k"), ANONYMOUS, StatusCode.FAILED_PRECONDITION),
        ("Scan", proto.KvScanRequest(namespace="lake"), ANONYMOUS, StatusCode.FAILED_PRECONDITION),
        ("Get", proto.KvGetRequest(), ANONYMOUS, StatusCode.INVALID_ARGUMENT),
        ("Put", proto.KvPutRequest(key=b"k" * 65537), ANONYMOUS, StatusCode.INVALID_ARGUMENT),
        ("Put", proto.KvPutRequest(key=b"k", value=b"v" * ((4 << 20) + 1)), ANONYMOUS, StatusCode.INVALID_ARGUMENT),
        ("Put", proto.KvPutRequest(key=b"k", ttl_seconds=2**64 - 1), ANONYMOUS, StatusCode.INVALID_ARGUMENT),
        ("Scan", proto.KvScanRequest(prefix=b"k" * 65537), ANONYMOUS, StatusCode.INVALID_ARGUMENT),
        ("BatchGet", proto.KvBatchGetRequest(keys=[b"k"] * 4097), ANONYMOUS, StatusCode.INVALID_ARGUMENT),
        ("BatchPut", proto.KvBatchPutRequest(entries=FEW * 4097), ANONYMOUS, StatusCode.INVALID_ARGUMENT),
        ("Get", b"\xff\xff\xff", ANONYMOUS, StatusCode.INVALID_ARGUMENT),
        ("Put", proto.KvPutRequest(key=b"k"), READER, StatusCode.PERMISSION_DENIED),
        ("Get", proto.KvGetRequest(namespace="default", key=b"k"), TENANT, StatusCode.PERMISSION_DENIED),
        ("Get", proto.KvGetRequest(namespace="none", key=b"k"), TENANT, StatusCode.PERMISSION_DENIED),
        ("Get", proto.KvGetRequest(key=b"k"), TABLES, StatusCode.PERMISSION_DENIED),
        ("Get", proto.KvGetRequest(key=b"k"), ROWS, StatusCode.PERMISSION_DENIED),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_status(server, method, request_, principal, code):
    with pytest.raises(StatusError) as refused:
        await server.call(method, request_, principal)
    assert refused.value.code is code
    assert refused.value.message


async def test_an_answer_too_large_for_one_message_is_refused(server):
    for number in range(5):
        await server.call("Put", proto.KvPutRequest(key=b"%d" % number, value=b"v" * (1 << 20)))
    with pytest.raises(StatusError) as refused:
        await server.call("BatchGet", proto.KvBatchGetRequest(keys=[b"%d" % number for number in range(5)]))
    assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED


async def test_the_largest_value_that_a_message_can_put_can_be_got(server):
    request = proto.KvPutRequest(key=b"k", value=b"v" * ((4 << 20) - 8))
    assert request.ByteSize() == 4 << 20
    await server.call("Put", request)
    answer = await server.call("Get", proto.KvGetRequest(key=b"k"))
    assert answer.ByteSize() <= 4 << 20
