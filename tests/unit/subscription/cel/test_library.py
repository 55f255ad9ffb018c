"""Facts about the library that evaluates CEL."""

import subprocess
import sys

SCRIPT = """
import sys, threading
from tailrace.subscription.cel.library import compile_program, load_library
assert "cel.cel" not in sys.modules
found, all_at_once = [], threading.Barrier(8)

def load():
    all_at_once.wait()
    found.append(load_library())

threads = [threading.Thread(target=load) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found), len(set(map(id, found))), compile_program("a + 1")({"a": 2}), "cel.cli" in sys.modules)
"""


def test_it_is_loaded_once_by_whoever_needs_it_first_and_without_its_command_line():
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True, text=True)
    assert ran.stdout == "8 1 3 False\n"
