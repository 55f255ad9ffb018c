"""Who calls over gRPC: the gate of its server. HTTP has its own in `tailrace.delivery.http.gate`."""

from tailrace.access.access import AccessControl
from tailrace.access.credential import token_of
from tailrace.access.keeper import End, Hold
from tailrace.access.principal import Principal
from tailrace.delivery.grpc.call import Metadata

__all__ = ["GrpcGate"]


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
