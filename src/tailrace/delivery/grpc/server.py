"""The gRPC port: binds, answers health checks, stops cleanly."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from tailrace.model.errors import ListenError

__all__ = ["GrpcServer"]

_STOP_GRACE_S = 2.0


class GrpcServer:
    """A gRPC server on one address. `start` it once, `stop` it once."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._health = health_aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    async def start(self) -> str:
        """Listen, and return the address with the port really taken.

        Raises:
            ListenError: The port is taken, or the address is not of this machine.
        """
        shown = f"[{self._host}]" if ":" in self._host else self._host
        try:
            port = self._server.add_insecure_port(f"{shown}:{self._port}")
        except RuntimeError as error:
            raise ListenError(
                f"{shown}:{self._port}", "the port is taken or the address is not of this machine"
            ) from error
        await self._server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        return f"{shown}:{port}"

    async def stop(self) -> None:
        """Tell watchers that it ends, let running calls finish for a moment, and close the port."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(_STOP_GRACE_S)
