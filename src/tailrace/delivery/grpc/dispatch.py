"""From a call to its handler: who calls (`GrpcGate`), whether they may, and how an error ends the call."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from tailrace.access.access import AccessControl
from tailrace.access.credential import token_of
from tailrace.access.keeper import End, Hold
from tailrace.access.principal import Principal
from tailrace.delivery.grpc.call import Metadata, Method, Service, StatusCode, StatusError
from tailrace.delivery.grpc.http2.stream import Http2Stream
from tailrace.delivery.grpc.status import status_of
from tailrace.delivery.site import Site
from tailrace.model.errors import TailraceError

__all__ = ["Dispatcher", "Gate", "GrpcGate"]

logger = logging.getLogger(__name__)


class Gate(Protocol):
    """Tells who calls."""

    async def __call__(self, path: str, metadata: Metadata) -> Principal:
        """Return who calls a path with some metadata, or raise `StatusError` or `TailraceError`."""

    def watch(
        self, principal: Principal, end: Callable[[TailraceError], None], *, counted: bool
    ) -> AbstractContextManager[None]:
        """Have `end` called when the credentials of a principal are no longer good, within a `with` block.

        What is `counted` is one of its streams; entering may raise `QuotaError`.
        """


class GrpcGate:
    """Tells who calls by the metadata of the call, and has calls end with the credentials that they came with."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    async def __call__(self, path: str, metadata: Metadata) -> Principal:
        """Return who calls.

        Raises:
            UnauthenticatedError: There are no credentials, or they are not good or not any more.
            RateLimitError: The principal has called too often.
        """
        return await self._access.gate.admit(token_of(_first(metadata, "authorization"), _first(metadata, "x-api-key")))

    def watch(self, principal: Principal, end: End, *, counted: bool) -> Hold:
        """Have `end` called when the credentials of a principal are no longer good, within a `with` block.

        What is `counted` is one of its streams; entering raises `QuotaError` where it has as many as it may.
        """
        return self._access.keeper.hold(principal, end, counted=counted)


def _first(metadata: Metadata, name: str) -> str | None:
    return next((value for key, value in metadata if key == name and isinstance(value, str)), None)


_INTERNAL = "internal error: see the log of the server"


class Dispatcher:
    """Finds the method of a call and runs its handler. Without a gate, everybody may call everything.

    No browser can speak gRPC today: it cannot send `te: trailers`. The `site` keeps that from being the only guard.
    """

    def __init__(self, services: Iterable[Service], gate: Gate | None, site: Site | None = None) -> None:
        self._methods = {
            f"/{service.name}/{name}": method for service in services for name, method in service.methods.items()
        }
        self._gate = gate
        self._site = site

    def find(self, path: str) -> Method | None:
        """Return the method at a path."""
        return self._methods.get(path)

    async def handle(self, stream: Http2Stream, method: Method) -> None:
        """Handle a call to its end: the caller gets one status, and learns nothing of faults.

        Raises:
            CancelledError: The call was ended from outside.
        """
        try:
            await self._admit(stream, method)
            with self._watch(stream, method):
                await _run(stream, method)
            stream.finish(StatusCode.OK)
        except StatusError as error:
            _finish(stream, error)
        except TailraceError as error:
            status = status_of(error)
            if status.code is StatusCode.INTERNAL and not stream.ended:
                logger.exception("a gRPC call failed", extra={"path": stream.path})
            _finish(stream, status)
        except asyncio.CancelledError:
            stream.finish(StatusCode.CANCELLED, "the call was cancelled")
            raise
        except Exception:
            if not stream.ended:
                logger.exception("a gRPC call failed", extra={"path": stream.path})
            stream.finish(StatusCode.INTERNAL, _INTERNAL)

    async def _admit(self, stream: Http2Stream, method: Method) -> None:
        if self._site is not None:
            self._site.check_host(stream.authority, stream.local)
            self._site.check_origin(stream.header("origin"), stream.authority)
        if self._gate is None or method.open_to_all:
            stream.admitted = self._gate is None
            return
        stream.principal = await self._gate(stream.path, stream.metadata)
        stream.admitted = True
        if method.capability is not None:
            stream.principal.require(method.capability)

    def _watch(self, stream: Http2Stream, method: Method) -> AbstractContextManager[None]:
        """End a call that lasts when its caller's credentials do."""
        if self._gate is None or method.unary is not None or method.open_to_all:
            return nullcontext()

        def end(reason: TailraceError) -> None:
            stream.end(status_of(reason))

        return self._gate.watch(stream.principal, end, counted=method.counted)


async def _run(stream: Http2Stream, method: Method) -> None:
    if method.unary is not None:
        await stream.answer(await method.unary(stream, await stream.only_message()))
    elif method.stream is not None:
        await method.stream(stream, await stream.only_message())
    else:
        assert method.bidi is not None
        await method.bidi(stream, stream.all_messages())


def _finish(stream: Http2Stream, error: StatusError) -> None:
    try:
        stream.finish(error.code, error.message, error.trailing)
    except ValueError:
        logger.exception("the trailing metadata of a gRPC call cannot be sent", extra={"path": stream.path})
        stream.finish(error.code, error.message)
