"""A stand-in for OpenSearch that answers as its documentation says: indexes, mappings, bulk requests, versions.

No server of that kind can be installed from a package here. What it checks is the part of the bulk interface that the
target relies on: external versions, deletions that are not found, documents that do not fit, refusals for load.
"""

import base64
import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

_FITS = {
    "long": lambda value: isinstance(value, int) or (isinstance(value, str) and value.lstrip("-").isdigit()),
    "boolean": lambda value: isinstance(value, bool) or value in {"true", "false", ""},
    "double": lambda value: isinstance(value, int | float) or _is_number(value),
}


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


class HttpServer(ThreadingHTTPServer):
    """Can be closed with all its connections."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, *arguments):
        self._open = set()
        super().__init__(*arguments)

    def process_request(self, request, client_address):
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, *_):
        """A connection that was cut is no news."""

    def hang_up(self):
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class FakeOpenSearch:
    """Listens on a free port of the loopback interface."""

    def __init__(self, user="admin", password="admin", port=0):
        self.mappings = {}
        self.documents = {}
        """(version, source) by index and id; a source of None is a deletion that is remembered."""
        self.busy = 0
        """How many more documents are refused for load."""
        self.swallowed = 0
        """How many more bulk requests are carried out, their answers lost."""
        self.bulks = 0
        self._scrolled = []
        self.bytes_max = None
        """Longest bulk request that is taken."""
        self.answering = threading.Event()
        """Cleared while nothing is answered."""
        self.answering.set()
        self._lock = threading.Lock()
        authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self):
                self._handle("PUT")

            def do_POST(self):
                self._handle("POST")

            def _handle(self, method):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.headers.get("authorization") != authorization:
                    self._answer(401, {"error": {"type": "security_exception"}, "status": 401})
                    return
                fake.answering.wait()
                with fake._lock:
                    status, answer = fake.handle(method, unquote(self.path), body)
                    if self.path == "/_bulk" and fake.swallowed:
                        fake.swallowed -= 1
                        self.close_connection = True
                        return
                self._answer(status, answer)

            def _answer(self, status, answer):
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._handler = Handler
        self.port = port

    def listen(self):
        """Begin to answer, the first time or again."""
        self._server = HttpServer(("127.0.0.1", self.port), self._handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def close(self):
        """Hang up and answer no more. What has been stored stays."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.hang_up()

    def sources(self, index):
        """Return the documents of an index by id."""
        found = self.documents.get(index, {})
        return {id_: source for id_, (_, source) in found.items() if source is not None}

    def handle(self, method, path, body):
        """Return status and answer of a request."""
        if (method, path) == ("POST", "/_bulk"):
            self.bulks += 1
            if self.bytes_max is not None and len(body) > self.bytes_max:
                return 413, _error("content_too_long_exception", 413)
            return self._bulk(body)
        if (method, path) in {("POST", "/_mget"), ("POST", "/_search/scroll")}:
            return 200, self._read(path, json.loads(body))
        index, _, rest = path.removeprefix("/").partition("/")
        if (method, rest) == ("PUT", ""):
            if index != index.lower() or index.startswith(("_", "-", "+")):
                return 400, _error("invalid_index_name_exception", 400)
            if index in self.mappings:
                return 400, _error("resource_already_exists_exception", 400)
            self.mappings[index] = json.loads(body)["mappings"]["properties"]
            return 200, {"acknowledged": True, "shards_acknowledged": True, "index": index}
        if (method, rest) == ("PUT", "_mapping"):
            wanted = json.loads(body)["properties"]
            for name, field in wanted.items():
                if self.mappings[index].get(name, field)["type"] != field["type"]:
                    return 400, _error("illegal_argument_exception", 400)
            self.mappings[index].update(wanted)
            return 200, {"acknowledged": True}
        if (method, rest) == ("POST", "_refresh"):
            return 200, {"_shards": {"failed": 0}}
        if method == "POST" and rest.startswith("_search?scroll="):
            self._scrolled = [{"_index": index, "_id": id_} for id_ in self.sources(index)]
            return 200, self._page(json.loads(body)["size"])
        return 405, _error("method_not_allowed", 405)

    def _read(self, path, asked):
        if path == "/_mget":
            return {"docs": [self._document(**where) for where in asked["docs"]]}
        assert asked["scroll_id"] == "page"
        return self._page(1)

    def _document(self, *, _index, _id):
        version, source = self.documents.get(_index, {}).get(_id, (None, None))
        said = {"_index": _index, "_id": _id}
        return (
            {**said, "found": False}
            if source is None
            else {**said, "_version": version, "found": True, "_source": source}
        )

    def _page(self, size):
        hits, self._scrolled = self._scrolled[:size], self._scrolled[size:]
        return {"_scroll_id": "page", "hits": {"hits": hits}}

    def _bulk(self, body):
        assert body.endswith(b"\n"), "a bulk request ends with a new line"
        lines = iter(body.splitlines())
        items = []
        for line in lines:
            ((op, where),) = json.loads(line).items()
            source = json.loads(next(lines)) if op == "index" else None
            items.append({op: self._apply(op, where, source)})
        errors = any("error" in result for item in items for result in item.values())
        return 200, {"took": 1, "errors": errors, "items": items}

    def _apply(self, op, where, source):
        index, id_, version = where["_index"], where["_id"], where["version"]
        assert where["version_type"] == "external_gte"
        assert len(id_.encode()) <= 512
        said = {"_index": index, "_id": id_}
        if self.busy:
            self.busy -= 1
            return {**said, **_error("rejected_execution_exception", 429)}
        documents = self.documents.setdefault(index, {})
        known, was = documents.get(id_, (-1, None))
        if version < known:
            return {**said, **_error("version_conflict_engine_exception", 409)}
        for name, value in (source or {}).items():
            fits = _FITS.get(self.mappings[index].get(name, {}).get("type"), lambda value: True)
            if value is not None and not fits(value):
                reason = f"failed to parse field [{name}] of type […]. Preview of field's value: '{value}'"
                return {**said, **_error("mapper_parsing_exception", 400, reason)}
        documents[id_] = (version, source)
        if op == "delete" and was is None:
            return {**said, "_version": version, "result": "not_found", "status": 404}
        created = was is None
        result = "deleted" if op == "delete" else "created" if created else "updated"
        return {**said, "_version": version, "result": result, "status": 201 if result == "created" else 200}


def _error(type_, status, reason="…"):
    return {"error": {"type": type_, "reason": reason}, "status": status}
