"""The library that evaluates CEL, without the command line that its package imports."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["compile_program"]

_PACKAGE = "cel"
_EXTENSION = "cel.cel"


def compile_program(text: str) -> Callable[[dict[str, Any]], Any]:
    """Return the function that evaluates an expression with given variables. It runs without Python's global lock.

    Raises:
        ValueError: The text is no expression.
    """
    return _LIBRARY.compile(text).execute  # type: ignore[no-any-return]


def _load() -> ModuleType:
    """Return the library's native module.

    The package itself imports a command line with its terminal toolkit, which takes seconds and is not needed. Where
    the native module is not found by itself, the package is imported as it is.
    """
    loaded = sys.modules.get(_EXTENSION)
    package = importlib.util.find_spec(_PACKAGE) if loaded is None else None
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(place) / f"cel{suffix}"
            if path.exists():
                loader = importlib.machinery.ExtensionFileLoader(_EXTENSION, str(path))
                spec = importlib.util.spec_from_file_location(_EXTENSION, path, loader=loader)
                assert spec is not None
                loaded = importlib.util.module_from_spec(spec)
                loader.exec_module(loaded)
                sys.modules[_EXTENSION] = loaded  # whoever imports the package takes this one
                return loaded
    return importlib.import_module(_EXTENSION) if loaded is None else loaded


_LIBRARY = _load()
"""Loaded with this module: not when the first subscription asks for it."""
