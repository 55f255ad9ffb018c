"""A whole server inside the test's process, on its own thread: starts quickly and listens on real sockets."""

import asyncio
import threading

from serving import DEADLINE_S, Calls
from tailrace.app import Application
from tailrace.config import AuthConfig, CaptureConfig, Config, RetentionConfig, SourceConfig, TlsConfig
from tailrace.interface.jimdb.options import JimdbConfig


class Running(Calls):
    """A running `Application`; leave it by `stop`."""

    def __init__(
        self, data_dir, auth=None, tls=None, *, retention=None, capture=None, jimdb=None, metadata_url="", **sources
    ):
        self.config = Config(
            data_dir=str(data_dir),
            http_port=0,
            grpc_port=0,
            retention=retention or RetentionConfig(),
            sources={name: SourceConfig(url) for name, url in sources.items()},
            auth=auth or AuthConfig(),
            tls=tls or TlsConfig(),
            capture=capture or CaptureConfig(),
            jimdb=jimdb or JimdbConfig(),
            metadata_url=metadata_url,
        )
        self.url = self.grpc = ""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        assert self.url

    def stop(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)

    def _run(self):
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._ready.set()

    async def _serve(self):
        async with Application(self.config) as application:
            self.url, self.grpc = application.addresses.http, application.addresses.grpc
            self._ready.set()
            await application.run(self._stop)
