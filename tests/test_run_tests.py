"""`make test` runs what failed once more, alone."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "run-tests"

PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): raise ValueError('always')\n"
FLAKY = """
import pathlib, pytest

class TestOf:
    @pytest.mark.parametrize("word", ["a", "b::c"])
    def test_flaky(self, word):
        flag = pathlib.Path(__file__).with_suffix("." + word)
        seen = flag.exists()
        flag.touch()
        assert seen, "only the first time"
"""


def run(folder: Path, text: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    command = [sys.executable, SCRIPT, "-n", "2", "test_it.py"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout


def test_a_run_without_failures_is_run_once(tmp_path):
    code, printed = run(tmp_path, PASSES)
    assert code == 0
    assert "once more" not in printed


def test_what_passes_the_second_time_is_flaky_and_does_not_fail_the_run(tmp_path):
    code, printed = run(tmp_path, PASSES + FLAKY)
    assert code == 0
    assert printed.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"
    assert "FLAKY test_it.py::TestOf::test_flaky[b::c]" in printed
    assert (tmp_path / ".test-results" / "flaky.txt").read_text().count("only the first time") >= 2


def test_what_fails_twice_fails_the_run(tmp_path):
    code, printed = run(tmp_path, PASSES + FAILS + FLAKY)
    assert code == 1
    assert printed.splitlines()[-1] == "3 passed, 1 failed, 0 skipped"
    assert "FLAKY test_it.py::test_fails" not in printed


def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path):
    code, printed = run(tmp_path, "import nothing_of_that_name")
    assert code not in {0, 5}
    assert "FLAKY" not in printed
