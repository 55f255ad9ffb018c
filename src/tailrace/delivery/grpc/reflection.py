"""What the server serves, as tools ask for it: `grpc.reflection.v1.ServerReflection` and its older name."""

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor

from tailrace.delivery.grpc.call import GrpcCall, Method, Service, StatusCode, prefixed
from tailrace.delivery.grpc.proto import grpc_reflection_alpha_pb2, grpc_reflection_pb2
from tailrace.delivery.grpc.proto.grpc_reflection_pb2 import (
    ErrorResponse,
    ExtensionNumberResponse,
    FileDescriptorResponse,
    ListServiceResponse,
    ServerReflectionRequest,
    ServerReflectionResponse,
    ServiceResponse,
)
from tailrace.delivery.grpc.protobuf import decoded, encoded

__all__ = ["reflection_services"]

_FILES = {
    "grpc.reflection.v1.ServerReflection": grpc_reflection_pb2.DESCRIPTOR.name,
    "grpc.reflection.v1alpha.ServerReflection": grpc_reflection_alpha_pb2.DESCRIPTOR.name,
}


def reflection_services(services: Iterable[Service]) -> list[Service]:
    """Return the services that describe others, and themselves. Those without a file are listed, not described."""
    named = {service.name: service.file for service in services} | _FILES
    methods = {"ServerReflectionInfo": Method(bidi=_Reflection(named).answer, counted=True)}
    return [Service(name, methods, file) for name, file in _FILES.items()]


class _Reflection:
    """Answers questions about the files that declare some services, and about the files that those import."""

    def __init__(self, files: dict[str, str]) -> None:
        self._names = sorted(files)
        self._pool = descriptor_pool.Default()
        self._files: dict[str, FileDescriptor] = {}
        for file in files.values():
            if file:
                self._add(self._pool.FindFileByName(file))

    async def answer(self, call: GrpcCall, messages: AsyncIterator[bytes]) -> None:
        """Answer each question."""
        async for message in messages:
            request = decoded(ServerReflectionRequest, message)
            response = self._respond(request)
            response.valid_host = request.host
            response.original_request.CopyFrom(request)
            await call.write(prefixed(encoded(response)))

    def _respond(self, request: ServerReflectionRequest) -> ServerReflectionResponse:
        match request.WhichOneof("message_request"):
            case "list_services":
                listed = ListServiceResponse(service=[ServiceResponse(name=name) for name in self._names])
                return ServerReflectionResponse(list_services_response=listed)
            case "file_by_filename":
                return self._described(self._files.get(request.file_by_filename))
            case "file_containing_symbol":
                return self._described(self._declaring(request.file_containing_symbol))
            case "all_extension_numbers_of_type" if self._declaring(request.all_extension_numbers_of_type):
                numbers = ExtensionNumberResponse(base_type_name=request.all_extension_numbers_of_type)
                return ServerReflectionResponse(all_extension_numbers_response=numbers)
            case _:
                return self._described(None)

    def _described(self, file: FileDescriptor | None) -> ServerReflectionResponse:
        if file is None:
            missing = ErrorResponse(error_code=StatusCode.NOT_FOUND, error_message="there is nothing of that name")
            return ServerReflectionResponse(error_response=missing)
        files: dict[str, bytes] = {}
        _collect(file, files)
        described = FileDescriptorResponse(file_descriptor_proto=list(files.values()))
        return ServerReflectionResponse(file_descriptor_response=described)

    def _declaring(self, symbol: str) -> FileDescriptor | None:
        with suppress(KeyError):
            return self._files.get(self._pool.FindFileContainingSymbol(symbol).name)
        with suppress(KeyError):
            return self._files.get(self._pool.FindMethodByName(symbol).containing_service.file.name)
        return None

    def _add(self, file: FileDescriptor) -> None:
        if file.name not in self._files:
            self._files[file.name] = file
            for imported in file.dependencies:
                self._add(imported)


def _collect(file: FileDescriptor, into: dict[str, bytes]) -> None:
    """Add a file and what it imports, the file itself first."""
    if file.name not in into:
        into[file.name] = file.serialized_pb
        for imported in file.dependencies:
            _collect(imported, into)
