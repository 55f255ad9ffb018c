"""What all tests share."""

import os
import signal

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("exploring", deadline=None, print_blob=True)
settings.load_profile("exploring" if os.environ.get("LONG_TESTS") else "repeatable")

# A shell that runs this in the background has it ignore interrupts, and all programs that it starts with it.
signal.signal(signal.SIGINT, signal.default_int_handler)
