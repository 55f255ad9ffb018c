"""The compiled helpers: small parts of Tailrace in C, there where a compiler was when it was installed.

Each has a way in pure Python beside it that gives the same bytes. See docs/decisions/compiled-helper.md.
"""

import importlib
import os
from types import ModuleType

__all__ = ["PURE_VARIABLE", "find_compiled"]

PURE_VARIABLE = "TAILRACE_PURE"
"""The environment variable that switches the compiled helpers off, when they are built and when they would be used."""


def find_compiled(name: str, layout: str) -> ModuleType | None:
    """Return a compiled helper; None where it was not built, is switched off, or was compiled for another layout."""
    if os.environ.get(PURE_VARIABLE):
        return None
    try:
        found = importlib.import_module(name)
    except ImportError:
        return None
    return found if layout == found.LAYOUT else None
