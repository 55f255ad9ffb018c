"""Facts about the demo."""

import pytest

from serving import run


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
