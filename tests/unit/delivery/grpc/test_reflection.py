"""What reflection answers, without a server."""

import pytest

from tailrace.delivery.grpc.call import Service
from tailrace.delivery.grpc.proto import sochdb_pb2
from tailrace.delivery.grpc.proto.grpc_reflection_pb2 import (
    ExtensionRequest,
    ServerReflectionRequest,
    ServerReflectionResponse,
)
from tailrace.delivery.grpc.reflection import reflection_services
from tailrace.testing.call import MemoryCall, messages_of

FILE = sochdb_pb2.DESCRIPTOR.name


async def asked(**question):
    services = [Service("sochdb.v1.KvService", {}, FILE), Service("x.Y", {})]
    (method,) = reflection_services(services)[0].methods.values()
    call = MemoryCall()

    async def messages():
        yield ServerReflectionRequest(host="h", **question).SerializeToString()

    await method.bidi(call, messages())
    (message,) = messages_of(b"".join(call.writes))
    response = ServerReflectionResponse.FromString(message)
    assert response.valid_host == "h"
    assert response.original_request == ServerReflectionRequest(host="h", **question)
    return response


async def test_services_are_listed_with_those_that_have_no_file():
    response = await asked(list_services="")
    assert [one.name for one in response.list_services_response.service] == [
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "sochdb.v1.KvService",
        "x.Y",
    ]


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": FILE},
        {"file_containing_symbol": "sochdb.v1.KvService"},
        {"file_containing_symbol": "sochdb.v1.KvService.Get"},
        {"file_containing_symbol": "sochdb.v1.SubscribeEvent.sequence"},
    ],
)
async def test_a_file_is_found_by_its_name_and_by_what_it_declares(question):
    response = await asked(**question)
    assert response.file_descriptor_response.file_descriptor_proto[0] == sochdb_pb2.DESCRIPTOR.serialized_pb


async def test_a_file_comes_with_those_that_it_imports():
    response = await asked(file_containing_symbol="grpc.reflection.v1alpha.ServerReflection")
    assert len(response.file_descriptor_response.file_descriptor_proto) == 2


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": "/etc/passwd"},
        {"file_by_filename": "tailrace/delivery/grpc/proto/status.proto"},
        {"file_containing_symbol": "tailrace.status.Status"},
        {"file_containing_symbol": "sochdb.v1.KvService.Nothing"},
        {"file_containing_symbol": ""},
        {"all_extension_numbers_of_type": "no.Such"},
        {"file_containing_extension": ExtensionRequest(containing_type="sochdb.v1.KvGetRequest", extension_number=1)},
        {},
    ],
)
async def test_what_is_not_served_is_not_found(question):
    assert (await asked(**question)).error_response.error_code == 5


async def test_nothing_of_ours_has_extensions():
    response = await asked(all_extension_numbers_of_type="sochdb.v1.KvGetRequest")
    assert list(response.all_extension_numbers_response.extension_number) == []
    assert response.all_extension_numbers_response.base_type_name == "sochdb.v1.KvGetRequest"
