"""A commit that is larger than the memory that capture may use."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_commit_of_half_a_million_changes_goes_through_the_log_in_bounded_memory():
    command = [sys.executable, "-m", "bench.log_parts", "500000"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "PASS" in ran.stdout
