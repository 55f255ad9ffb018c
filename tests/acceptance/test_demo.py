"""Facts about the demo."""

import os
import re
import signal
import subprocess
import sys

import pytest

from serving import run, wait_until

OFFSET = re.compile(r"^\S+ +(\d+) +(?:insert|update|delete)", re.MULTILINE)


@pytest.mark.timeout(300)
def test_one_round_replays_to_exactly_the_sources_tables():
    result = run("demo", "--once", "--trades", 120, "--no-pipeline", timeout=280)
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    assert "replayed, they are exactly" in line


@pytest.mark.timeout(400)
def test_one_round_ends_with_delta_tables_equal_to_the_shops():
    pytest.importorskip("pyspark")
    result = run("demo", "--once", "--trades", 60, timeout=380)
    assert result.returncode == 0, result.stderr
    first, verdict, *tables = result.stdout.splitlines()
    assert "replayed, they are exactly" in first
    assert "equal at offset" in verdict
    assert "NOT" not in verdict
    assert len(tables) == 4
    told = [line for line in result.stderr.splitlines() if line.startswith("demo: ")]
    assert len(told) == 5, result.stderr
    assert not [word for word in ("WARN", "log4j", "Exception") if word in result.stderr], result.stderr


@pytest.mark.timeout(300)
def test_a_live_demo_shows_changes_in_order_and_ends_when_it_is_asked_to(tmp_path):
    command = [sys.executable, "-m", "tailrace", "demo", "--http-port", "0", "--grpc-port", "0", "--no-pipeline"]
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        offsets = lambda: [int(found) for found in OFFSET.findall((tmp_path / "out").read_text())]  # noqa: E731
        wait_until(lambda: len(offsets()) > 60 or process.poll() is not None, "changes shown", 200)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
        assert offsets() == sorted(offsets())
        assert (tmp_path / "out").read_text().startswith("demo: starting")
    finally:
        process.kill()
        process.wait()
