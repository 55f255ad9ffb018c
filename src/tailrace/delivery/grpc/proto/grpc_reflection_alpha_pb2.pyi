from tailrace.delivery.grpc.proto import grpc_reflection_pb2 as _grpc_reflection_pb2
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor
