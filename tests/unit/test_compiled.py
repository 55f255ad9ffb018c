"""Facts about the compiled helpers: when they are used."""

import os
import subprocess
import sys

import pytest

from tailrace.compiled import PURE_VARIABLE, find_compiled
from tailrace.delivery import join
from tailrace.log import payload
from tailrace.pipeline import image_columns
from tailrace.source.postgres import frame

HELPERS = [payload.compiled, join.compiled, image_columns.compiled, frame.compiled]


def test_a_helper_that_was_not_built_is_not_there():
    assert find_compiled("tailrace.log._nothing", "") is None


@pytest.mark.parametrize("helper", HELPERS, ids=["payload", "join", "images", "rows"])
def test_a_helper_for_another_layout_is_not_used(helper):
    if helper is None:
        pytest.skip("the compiled helper was not built, or is switched off")
    assert find_compiled(helper.__name__, helper.LAYOUT) is helper
    assert find_compiled(helper.__name__, "another") is None


def test_the_variable_switches_all_helpers_off():
    code = (
        "from tailrace.log import payload; from tailrace.delivery import join; "
        "from tailrace.pipeline import image_columns; from tailrace.source.postgres import frame; "
        "print(payload.compiled, join.compiled, image_columns.compiled, frame.compiled)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, PURE_VARIABLE: "1"}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "None None None None\n"
