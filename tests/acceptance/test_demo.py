"""Facts about the demo."""

from serving import run


def test_one_round_replays_to_exactly_the_sources_tables():
    result = run("demo", "--once", "--trades", 120, timeout=90)
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    assert "replayed, they are exactly" in line
