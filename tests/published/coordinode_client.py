"""Uses the published package `coordinode` as CoordiNode says. Runs in an environment of its own.

    coordinode_client.py subscribe   ADDRESS REQUEST [METADATA]
    coordinode_client.py acknowledge ADDRESS REQUEST
    coordinode_client.py cancel      ADDRESS REQUEST
    coordinode_client.py health      ADDRESS

Requests are JSON objects. What comes is written as JSON lines: `{"begun": …}`, one line for each event, and at the end
of a call `{"ended": code, "details": …, "trailing": …}`. Bytes are shown as text in Latin-1.
"""

import json
import sys

import grpc
from coordinode import CoordinodeClient
from coordinode._proto.coordinode.v1.replication import cdc_pb2, cdc_pb2_grpc
from google.protobuf import json_format
from google.protobuf.unknown_fields import UnknownFieldSet


def main(command, address, *arguments):
    if command == "health":
        host, _, port = address.rpartition(":")
        with CoordinodeClient(host, int(port)) as client:
            show(client.health())
        return
    stub = cdc_pb2_grpc.ChangeStreamServiceStub(grpc.insecure_channel(address))
    fields = json.loads(arguments[0])
    match command:
        case "subscribe":
            metadata = list(json.loads(arguments[1]).items()) if len(arguments) > 1 else None
            request = json_format.ParseDict(fields, cdc_pb2.SubscribeRequest())
            show_stream(stub.Subscribe(request, metadata=metadata))
        case "acknowledge":
            request = json_format.ParseDict(fields, cdc_pb2.AcknowledgeSubscriptionRequest())
            show_unary(stub.AcknowledgeSubscription, request)
        case "cancel":
            request = json_format.ParseDict(fields, cdc_pb2.CancelSubscriptionRequest())
            show_unary(stub.CancelSubscription, request)


def show_stream(call):
    try:
        show({"begun": dict(call.initial_metadata())})
        for event in call:
            show(shown(event))
    except grpc.RpcError:
        pass
    show_end(call)


def show_unary(method, request):
    try:
        _, call = method.with_call(request)
    except grpc.RpcError as error:
        call = error
    show_end(call)


def show_end(call):
    trailing = {name: text(value) for name, value in call.trailing_metadata() or ()}
    show({"ended": call.code().name, "details": call.details(), "trailing": trailing})


def shown(event):
    position = event.position
    return {
        "ts": event.ts,
        "term": event.term,
        "log_index": event.log_index,
        "shard_id": event.shard_id,
        "is_migration": event.is_migration,
        "ops": [
            {
                "type": cdc_pb2.ChangeOpType.Name(op.type),
                "partition": op.partition,
                "key": text(op.key),
                "value": text(op.value),
                "before": "".join(text(field.data) for field in UnknownFieldSet(op) if field.field_number == 1001),
            }
            for op in event.ops
        ],
        "position": {
            "shard_id": position.shard_id,
            "segment_id": position.segment_id,
            "entry_offset": position.entry_offset,
        },
    }


def text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else value


def show(value):
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
