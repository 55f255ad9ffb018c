"""A real S3 server for tests: moto as a process, on a free port of the loopback interface, ended by its pid."""

import contextlib
import itertools
import subprocess
import sys
from urllib.parse import urlencode

import boto3
import httpx

from databases import free_port
from serving import wait_until

READY_S = 60.0
KEY = {"access_key_id": "test-key", "secret_access_key": "test/s3cret+key"}
NUMBERS = itertools.count()


class ObjectServer:
    """One moto. Its buckets are in its memory."""

    def __init__(self):
        self.port = free_port()
        self.process = None

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, "-c", "from moto.server import main; main()", "-p", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait()
        return self

    def wait(self):
        """Wait until it answers."""
        wait_until(self._answers, "the S3 server answers", READY_S)

    def _answers(self):
        assert self.process.poll() is None, "the S3 server has ended"
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.endpoint}/moto-api/").status_code < 500
        return False

    def bucket(self):
        """Make a bucket; return its name."""
        name = f"bucket-{next(NUMBERS)}-{self.port}"
        self.client().create_bucket(Bucket=name)
        return name

    def client(self):
        """Return a client of another library than those under test."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY["access_key_id"],
            aws_secret_access_key=KEY["secret_access_key"],
        )

    def objects(self, bucket, prefix=""):
        """Return the objects below a prefix by their names."""
        client = self.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        names = [one["Key"] for page in pages for one in page.get("Contents", ())]
        return {name: client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}

    def options(self, endpoint=None, **others):
        """Return the options of a sink's URL that lead here, or to another endpoint."""
        return urlencode({"endpoint": endpoint or self.endpoint, **KEY, **others}, safe="{}")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
