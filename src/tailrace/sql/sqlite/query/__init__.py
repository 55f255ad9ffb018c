"""What a query depends on, and which changes can touch its result.

The way of a query: `parse` its text, or `to_sql` its tree first; `analyse` it against the source's catalog; `bind` its
arguments; a `Judge` then tells which changes matter.

The names are loaded when they are used: what binds and compares values is needed without a query, the parser is not.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.sql.sqlite.query.argument import bind
    from tailrace.sql.sqlite.query.dependency import Dependency, QueryDependencies, analyse
    from tailrace.sql.sqlite.query.relevance import QueryJudge
    from tailrace.sql.sqlite.query.statement import Query, parse

__all__ = ["Dependency", "Query", "QueryDependencies", "QueryJudge", "analyse", "bind", "parse"]

_HOMES = {"QueryJudge": "relevance", "Query": "statement", "parse": "statement", "bind": "argument"}
"""The modules of names that are not in `dependency`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'dependency')}"), name)
