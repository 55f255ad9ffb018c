"""A receiver of web hooks that answers as it is told."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """Listens on a free port. `answer(headers, body)` returns a status, or None to hang up without an answer."""

    def __init__(self, context=None):
        self.requests = []
        self.answer = lambda headers, body: 204
        lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with lock:
                    status = receiver.answer(headers, body)
                    receiver.requests.append((self.path, headers, body, status))
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def taken(self):
        """Return the bodies of the requests that were accepted, in order."""
        return [body for _, _, body, status in self.requests if status is not None and status < 300]

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def receiving(context=None):
    receiver = Receiver(context)
    try:
        yield receiver
    finally:
        receiver.close()
