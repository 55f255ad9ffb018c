"""A receiver of web hooks that answers as it is told."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler

from fake_opensearch import HttpServer


class Receiver:
    """Listens on a free port. `answer(headers, body)` returns a status, or None to hang up without an answer."""

    def __init__(self, context=None, port=0):
        self.requests = []
        self.answering = threading.Event()
        """Cleared while nothing is answered."""
        self.answering.set()
        self.answer = lambda headers, body: 204
        self.headers = {}
        """What answers have besides."""
        self.text = b""
        """The body of answers."""
        lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    self.close_connection = True  # the connection was cut in the middle of it
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.answering.wait()
                with lock:
                    status = receiver.answer(headers, body)
                    receiver.requests.append((self.path, headers, body, status))
                if status is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("content-length", str(len(receiver.text)))
                for name, text in receiver.headers.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(receiver.text)

            def log_message(self, *_):
                pass

        self._handler, self._context, self.port = Handler, context, port

    def listen(self):
        """Begin to answer, the first time or again."""
        self._server = HttpServer(("127.0.0.1", self.port), self._handler)
        if self._context is not None:
            self._server.socket = self._context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def taken(self):
        """Return the bodies of the requests that were accepted, in order."""
        return [body for _, _, body, status in self.requests if status is not None and status < 300]

    def close(self):
        """Hang up and answer no more. What has been taken stays."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.hang_up()


@contextlib.contextmanager
def receiving(context=None):
    receiver = Receiver(context).listen()
    try:
        yield receiver
    finally:
        receiver.close()
