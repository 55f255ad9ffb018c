"""Health and reflection, asked for by the published packages in a process of their own, which has its own messages."""

import json
import subprocess
import sys
import threading

import grpc
import pytest

from grpc_serving import DEADLINE_S, served
from tailrace.delivery.grpc.call import Method, Service
from tailrace.delivery.grpc.proto import sochdb_pb2

REFLECT = """
import json, sys, grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

with grpc.insecure_channel(sys.argv[1]) as channel:
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    services = sorted(database.get_services())
    methods = {name: sorted(pool.FindServiceByName(name).methods_by_name) for name in services if name != "test.Bare"}
    message = pool.FindMessageTypeByName("sochdb.v1.SubscribeEvent")
    missing = 0
    for name in ("no.such.Thing", "google.protobuf.FileDescriptorProto"):
        try:
            pool.FindMessageTypeByName(name)
        except KeyError:
            missing += 1
    fields = [field.name for field in message.fields]
print(json.dumps({"services": services, "methods": methods, "fields": fields, "missing": missing}))
"""

HEALTH = """
import json, sys, grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest
    checked = [stub.Check(request(service=name), timeout=20).status for name in ("", "sochdb.v1.KvService")]
    try:
        stub.Check(request(service="nothing"), timeout=20)
    except grpc.RpcError as error:
        unknown = error.code().name
    listed = {name: one.status for name, one in stub.List(health_pb2.HealthListRequest(), timeout=20).statuses.items()}
    watches = [stub.Watch(request(service=name), timeout=20) for name in ("", "nothing")]
    watched = [next(watch).status for watch in watches]
    print(json.dumps({"checked": checked, "unknown": unknown, "listed": listed, "watched": watched}), flush=True)
    told = []
    try:
        for one in watches[0]:
            told.append(one.status)
    except grpc.RpcError as error:
        print(json.dumps({"told": told, "code": error.code().name}), flush=True)
"""

SERVICES = [
    Service(
        "sochdb.v1.KvService",
        {name: Method(unary=lambda call, message: None) for name in ("Get", "Put")},
        sochdb_pb2.DESCRIPTOR.name,
    ),
    Service("test.Bare", {}),
]


@pytest.fixture
def server():
    with served(SERVICES) as server:
        yield server


def test_tools_learn_what_is_served(server):
    done = subprocess.run(
        [sys.executable, "-c", REFLECT, server.address], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["services"] == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "sochdb.v1.KvService",
        "test.Bare",
    ]
    assert found["methods"]["grpc.health.v1.Health"] == ["Check", "List", "Watch"]
    assert found["methods"]["sochdb.v1.KvService"] == ["BatchGet", "BatchPut", "Delete", "Get", "Put", "Scan"]
    assert found["methods"]["grpc.reflection.v1alpha.ServerReflection"] == ["ServerReflectionInfo"]
    assert found["fields"][:3] == ["sequence", "timestamp_us", "txn_id"]
    assert found["missing"] == 2


def test_health_is_checked_listed_and_watched():
    with (
        served(SERVICES) as server,
        subprocess.Popen([sys.executable, "-c", HEALTH, server.address], stdout=subprocess.PIPE, text=True) as child,
    ):
        guard = threading.Timer(60, child.kill)
        guard.start()
        try:
            assert json.loads(child.stdout.readline()) == {
                "checked": [1, 1],
                "unknown": "NOT_FOUND",
                "listed": {"": 1, "sochdb.v1.KvService": 1, "test.Bare": 1},
                "watched": [1, 3],
            }
            server.call(lambda: server.server.health.set("", serving=False))
            server.call(lambda: server.server.health.set("", serving=True))
            server.run(server.server.stop())
            last = json.loads(child.stdout.readline())
        finally:
            guard.cancel()
    assert (last["told"][-1], last["code"]) == (2, "UNAVAILABLE")


@pytest.mark.parametrize(
    "path", ["/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"]
)
def test_what_is_no_message_is_refused(server, path):
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(path)(iter([b"\xff\xff\xff"]), timeout=DEADLINE_S))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
