"""An HTTP proxy in front of an S3 server: it passes requests on, and answers, delays or cuts those that it is to."""

import contextlib
import http.client
import socket
import socketserver
import struct
import threading
import time
from enum import StrEnum
from http.server import BaseHTTPRequestHandler

TIMEOUT_S = 30


class Fault(StrEnum):
    """What may happen to a request. `AFTER` says that the server did what it was asked."""

    ERROR = "500"
    ERROR_AFTER = "500 after"
    THROTTLED = "503"
    CUT = "cut"
    CUT_AFTER = "cut after"
    SLOW = "slow"
    FORBIDDEN = "403"


ANSWERS = {
    Fault.ERROR: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.ERROR_AFTER: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.THROTTLED: (503, "SlowDown", "Please reduce your request rate."),
    Fault.FORBIDDEN: (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
}


class ObjectProxy:
    """Listens on a free port of the loopback interface; `choose` says what becomes of each request."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.choose = lambda _method, _path: None
        self.slow_s = 0.3
        self.requests = []
        """Method, path and headers of all requests, in the order in which they came."""
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def once(self, fault, method, part, times=1):
        """Let something happen to the next requests of a method, or of some, whose path has a part."""
        left = [times]

        def choose(asked, path):
            if left[0] and asked in method.split() and part in path:
                left[0] -= 1
                return fault
            return None

        self.choose = choose
        return lambda: times - left[0]

    def always(self, fault):
        self.choose = lambda _method, _path: fault

    def mend(self):
        self.choose = lambda _method, _path: None

    def note(self, method, path, headers):
        """Note a request; return what is to become of it."""
        with self._lock:
            self.requests.append((method, path, headers))
            return self.choose(method, path)

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, *_):
        """Whoever cut a connection knows it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_expect_100(self):
        self.send_response_only(100)
        self.end_headers()
        return True

    def do(self):
        body = self.body()
        fault = self.server.proxy.note(self.command, self.path, dict(self.headers))
        if fault is Fault.SLOW:
            time.sleep(self.server.proxy.slow_s)
        if fault is Fault.CUT:
            self.cut()
            return
        if fault in (None, Fault.SLOW, Fault.ERROR_AFTER, Fault.CUT_AFTER):
            answer = self.passed_on(body)
        if fault is Fault.CUT_AFTER:
            self.cut()
        elif fault in ANSWERS:
            status, code, message = ANSWERS[fault]
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            self.answer(status, [("Content-Type", "application/xml")], text)
        else:
            self.answer(*answer)

    def __getattr__(self, name):
        """Return what all methods of HTTP are done by."""
        if name.startswith("do_"):
            return self.do
        raise AttributeError(name)

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def passed_on(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.proxy.server_port, timeout=TIMEOUT_S)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, answer.getheaders(), data
        finally:
            connection.close()

    def answer(self, status, headers, data):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _OWN or (self.command == "HEAD" and name.lower() == "content-length"):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def cut(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *_):
        """Nobody reads it."""


_OWN = {"connection", "content-length", "transfer-encoding", "expect", "keep-alive"}
