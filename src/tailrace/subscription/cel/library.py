"""The library that evaluates CEL, without the command line that its package imports."""

import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["compile_program", "load_library"]

_PACKAGE = "cel"
_EXTENSION = "cel.cel"
_LOADING = threading.Lock()
"""The native module can be made only once in a process."""


def compile_program(text: str) -> Callable[[dict[str, Any]], Any]:
    """Return the function that evaluates an expression with given variables. It runs without Python's global lock.

    Raises:
        ValueError: The text is no expression.
    """
    return load_library().compile(text).execute  # type: ignore[no-any-return]


def load_library() -> ModuleType:
    """Return the library's native module; it is loaded when it is first asked for, by whichever thread.

    That takes some milliseconds, or longer where the disk is slow: tasks of an event loop have a thread load it before
    they compile.

    The package itself imports a command line with its terminal toolkit, which takes seconds and is not needed. Where
    the native module is not found by itself, the package is imported as it is.
    """
    with _LOADING:
        return sys.modules.get(_EXTENSION) or _load()


def _load() -> ModuleType:
    package = importlib.util.find_spec(_PACKAGE)
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
    return importlib.import_module(_EXTENSION)
