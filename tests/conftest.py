"""What all tests share."""

import os

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("exploring", deadline=None, print_blob=True)
settings.load_profile("exploring" if os.environ.get("LONG_TESTS") else "repeatable")
