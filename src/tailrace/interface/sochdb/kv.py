"""`sochdb.v1.KvService`: keys and values of SochDB."""

from contextlib import aclosing

from tailrace.access.key_value import KeyValues
from tailrace.access.principal import Capability
from tailrace.delivery.grpc.call import GrpcCall, Method, Service, prefixed
from tailrace.delivery.grpc.proto import sochdb_pb2 as proto
from tailrace.delivery.grpc.protobuf import decoded, encoded
from tailrace.source.key_value import Entry

__all__ = ["kv_service"]


def kv_service(values: KeyValues) -> Service:
    """Return the service."""
    handlers = _Handlers(values)
    return Service(
        "sochdb.v1.KvService",
        {
            "Get": Method(unary=handlers.get, capability=Capability.READ),
            "Put": Method(unary=handlers.put, capability=Capability.WRITE),
            "Delete": Method(unary=handlers.delete, capability=Capability.WRITE),
            "Scan": Method(stream=handlers.scan, capability=Capability.READ, counted=True),
            "BatchGet": Method(unary=handlers.batch_get, capability=Capability.READ),
            "BatchPut": Method(unary=handlers.batch_put, capability=Capability.WRITE),
        },
        proto.DESCRIPTOR.name,
    )


class _Handlers:
    """What goes wrong is a status; the `error` fields of the answers stay empty."""

    def __init__(self, values: KeyValues) -> None:
        self._values = values

    async def get(self, call: GrpcCall, message: bytes) -> bytes:
        """Answer one value, or that it is not there."""
        request = decoded(proto.KvGetRequest, message)
        (value,) = await self._values.get(call.principal, request.namespace, [request.key])
        return encoded(proto.KvGetResponse(value=value, found=value is not None))

    async def put(self, call: GrpcCall, message: bytes) -> bytes:
        """Keep one entry."""
        request = decoded(proto.KvPutRequest, message)
        entry = Entry(request.key, request.value, request.ttl_seconds)
        await self._values.put(call.principal, request.namespace, [entry])
        return encoded(proto.KvPutResponse(success=True))

    async def delete(self, call: GrpcCall, message: bytes) -> bytes:
        """Remove one key; without success where it was not there."""
        request = decoded(proto.KvDeleteRequest, message)
        existed = await self._values.delete(call.principal, request.namespace, request.key)
        return encoded(proto.KvDeleteResponse(success=existed))

    async def scan(self, call: GrpcCall, message: bytes) -> None:
        """Write the entries of a prefix, many messages at a time."""
        request = decoded(proto.KvScanRequest, message)
        scan = self._values.scan(call.principal, request.namespace, request.prefix, request.limit)
        async with aclosing(scan) as pages:
            async for page in pages:
                answers = [proto.KvScanResponse(key=entry.key, value=entry.value) for entry in page]
                await call.write(b"".join([prefixed(encoded(answer)) for answer in answers]))

    async def batch_get(self, call: GrpcCall, message: bytes) -> bytes:
        """Answer the values of many keys, in their order."""
        request = decoded(proto.KvBatchGetRequest, message)
        values = await self._values.get(call.principal, request.namespace, request.keys)
        pairs = zip(request.keys, values, strict=True)
        entries = [proto.KvEntry(key=key, value=value, found=value is not None) for key, value in pairs]
        return encoded(proto.KvBatchGetResponse(entries=entries))

    async def batch_put(self, call: GrpcCall, message: bytes) -> bytes:
        """Keep many entries, all or none."""
        request = decoded(proto.KvBatchPutRequest, message)
        entries = [Entry(entry.key, entry.value, entry.ttl_seconds) for entry in request.entries]
        await self._values.put(call.principal, request.namespace, entries)
        return encoded(proto.KvBatchPutResponse(success_count=len(entries)))
