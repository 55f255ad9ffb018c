"""The user's transformation as a Python function: where it is found, how it is called, how tasks get its module."""

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tailrace.meta.pipeline import Definition
from tailrace.pipeline.errors import TransformError

__all__ = ["call_function", "find_function", "ship"]

_TABLE = "table"
"""Name of the parameter that takes the name of the table; a function need not have it."""


def call_function(spec: str, frame: Any, table: str, files: Sequence[str] = ()) -> Any:
    """Return the DataFrame that the function `module:function` makes of the changes of a table.

    Raises:
        TransformError: There is no such function, it raises, or returns something else.
    """
    from pyspark.errors import PySparkException

    function = find_function(spec, tuple(files))
    try:
        result = function(frame, **({_TABLE: table} if _takes_table(function) else {}))
    except PySparkException:
        raise  # what Spark does not take is reported alike for SQL and functions
    except Exception as error:
        # Not what it says: values of rows may be in it, and the message is kept in the pipeline's status.
        where = _place(error, function)
        raise TransformError(
            f"the transformation {spec} of table {table} raised {type(error).__name__}{where}"
        ) from error
    if not hasattr(result, "toArrow"):
        raise TransformError(
            f"the transformation {spec} returned {type(result).__name__} for table {table}: return a DataFrame"
        )
    return result


@cache
def find_function(spec: str, files: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Return the function of a module that is in one of the files, installed, or on the path of Python.

    Raises:
        TransformError: There is none, or the module cannot be imported.
    """
    for file in files:
        place = _import_place(file)
        # Where Spark Connect runs this, Spark has put the module on the path itself and there are no such files.
        if Path(file).exists() and place not in sys.path:
            sys.path.append(place)
    importlib.invalidate_caches()
    module_name, _, name = spec.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # any error that the code of the user raises
        hint = "; name its file (--py-files), or install it" if isinstance(error, ModuleNotFoundError) else ""
        raise TransformError(
            f"cannot import {module_name} for the transformation {spec}: {type(error).__name__}: {error}{hint}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise TransformError(f"module {module_name} has no function {name}: check the transformation {spec}")
    return function  # type: ignore[no-any-return]


def ship(session: Any, definition: Definition) -> None:
    """Have Spark give the files of a pipeline's transformation to all of its Python processes."""
    context = None if not definition.py_files or _is_connect(session) else session.sparkContext
    for file in definition.py_files:
        if context is None:
            session.addArtifacts(file, pyfile=True)
        else:
            context.addPyFile(file)


def _is_connect(session: Any) -> bool:
    return ".connect." in type(session).__module__


def _import_place(file: str) -> str:
    """Return what the path of Python must have for a file: the directory of a module, an archive itself."""
    return str(Path(file).parent) if file.endswith(".py") else file


def _takes_table(function: Callable[..., Any]) -> bool:
    return _TABLE in inspect.signature(function).parameters


def _place(error: Exception, function: Callable[..., Any]) -> str:
    """Return the line of the function's file where it raised, for people."""
    file, trace, line = inspect.getsourcefile(function), error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" in line {line}" if line else ""
