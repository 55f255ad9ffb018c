"""A real browser, driven over the DevTools protocol. Names below `example` are those of this machine."""

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import time
import urllib.request

import pytest
import websockets.sync.client

from serving import DEADLINE_S, wait_until

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
START_S = 90.0
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
]

needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(BROWSERS)}")


class Page:
    """A page of a browser, driven over the DevTools protocol."""

    def __init__(self, connection):
        self.connection = connection
        self.number = 0

    def run(self, script):
        """Run a script; return its value, awaited where it is a promise."""
        params = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self._ask("Runtime.evaluate", params)
        assert "exceptionDetails" not in answer["result"], answer
        return answer["result"]["result"].get("value")

    def open(self, url):
        """Go to an address."""
        self._ask("Page.navigate", {"url": url})
        there = "location.href === " + json.dumps(url) + " && document.readyState === 'complete'"
        wait_until(lambda: self.run(there), f"the page {url} is there")

    def _ask(self, method, params):
        self.number += 1
        self.connection.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while (answer := json.loads(self.connection.recv(DEADLINE_S))).get("id") != self.number:
            pass
        return answer


@contextlib.contextmanager
def page_of(profile):
    """Start a browser with an empty page."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        port = debugging_port(process)
        url = wait_until(lambda: page_url(port), "the page is there")
        with websockets.sync.client.connect(
            url, proxy=None, max_size=None, open_timeout=DEADLINE_S, ping_interval=None
        ) as connection:
            yield Page(connection)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        process.stderr.close()


def page_url(port):
    """Return the address of the empty page; None while the browser has none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=DEADLINE_S) as answer:
        return next((one["webSocketDebuggerUrl"] for one in json.load(answer) if one["type"] == "page"), None)


def debugging_port(process):
    """Return the port that the browser names when it is ready."""
    text = b""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        ready, _, _ = select.select([process.stderr], [], [], 0.5)
        if ready:
            text += os.read(process.stderr.fileno(), 65536)
            match = re.search(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/", text)
            if match:
                return int(match[1])
    raise AssertionError(f"the browser did not start: {text[-2000:]!r}")
