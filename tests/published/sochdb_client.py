"""Uses the published package `sochdb` as its documentation says. Runs in an environment of its own.

    sochdb_client.py subscribe ADDRESS REQUEST [METADATA]
    sochdb_client.py watch     ADDRESS REQUEST
    sochdb_client.py list      ADDRESS NAMESPACE
    sochdb_client.py cancel    ADDRESS SUBSCRIPTION_ID
    sochdb_client.py kv        ADDRESS [METHOD, argument, …] …

Requests are JSON objects. What comes is written as JSON lines: `{"begun": …}`, one line for each event, and at the end
of a stream `{"ended": code, "details": …, "trailing": …}`.
"""

import json
import sys

import grpc
from sochdb import SochDBClient
from sochdb.proto import sochdb_pb2, sochdb_pb2_grpc

OP_NAMES = {
    sochdb_pb2.OPERATION_INSERT: "INSERT",
    sochdb_pb2.OPERATION_UPDATE: "UPDATE",
    sochdb_pb2.OPERATION_DELETE: "DELETE",
    sochdb_pb2.OPERATION_SCHEMA_CHANGE: "SCHEMA_CHANGE",
}


def main(command, address, *arguments):
    channel = grpc.insecure_channel(address)
    stub = sochdb_pb2_grpc.SubscriptionServiceStub(channel)
    match command:
        case "subscribe":
            request = sochdb_pb2.SubscribeRequest(**json.loads(arguments[0]))
            metadata = list(json.loads(arguments[1]).items()) if len(arguments) > 1 else None
            show_stream(stub.Subscribe(request, metadata=metadata))
        case "watch":
            fields = json.loads(arguments[0])
            fields["key"] = fields.get("key", "").encode()
            show_stream(stub.WatchKey(sochdb_pb2.WatchKeyRequest(**fields)))
        case "list":
            answer = stub.ListSubscriptions(sochdb_pb2.ListSubscriptionsRequest(namespace=arguments[0]))
            for info in answer.subscriptions:
                names = ("subscription_id", "namespace", "start_sequence", "current_sequence", "created_at_us")
                show({name: getattr(info, name) for name in names} | {"tables": list(info.tables)})
        case "cancel":
            request = sochdb_pb2.CancelSubscriptionRequest(subscription_id=arguments[0])
            answer = stub.CancelSubscription(request)
            show({"success": answer.success, "error": answer.error})
        case "kv":
            client = SochDBClient(address)
            for step in arguments:
                method, *values = json.loads(step)
                answer = getattr(client, method)(*(value.encode() for value in values))
                show(answer.decode("latin-1") if isinstance(answer, bytes) else answer)


def show_stream(call):
    try:
        show({"begun": dict(call.initial_metadata())})
        for event in call:
            show(shown(event))
    except grpc.RpcError:
        pass
    trailing = {name: value for name, value in call.trailing_metadata() if isinstance(value, str)}
    show({"ended": call.code().name, "details": call.details(), "trailing": trailing})


def shown(event):
    fields = {}
    for descriptor, value in event.ListFields():
        fields[descriptor.name] = value.decode("latin-1") if isinstance(value, bytes) else value
    fields["operation"] = OP_NAMES.get(event.operation, "?")
    return fields


def show(value):
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
