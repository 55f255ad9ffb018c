"""Which SQL functions give the same value for the same rows, and which of those care about the rows' order. Pure.

SQLite's functions by name. What is in neither table is taken for volatile: its value may change while no row does.
"""

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from tailrace.sql.sqlite.catalog import fold
from tailrace.sql.sqlite.lexer import RESERVED, Sort, SqlToken

__all__ = ["AGGREGATES", "SCALARS", "Usage", "usage", "volatile_names"]

# fmt: off
SCALARS = frozenset(
    {
        "->", "->>", "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "ceiling",
        "char", "coalesce", "concat", "concat_ws", "cos", "cosh", "count", "degrees", "exp", "floor", "format",
        "glob", "hex", "if", "ifnull", "iif", "instr", "json", "json_array", "json_array_length",
        "json_error_position", "json_extract", "json_insert", "json_object", "json_patch", "json_pretty",
        "json_quote", "json_remove", "json_replace", "json_set", "json_type", "json_valid", "jsonb",
        "jsonb_array", "jsonb_extract", "jsonb_insert", "jsonb_object", "jsonb_patch", "jsonb_remove",
        "jsonb_replace", "jsonb_set", "length", "like", "likelihood", "likely", "ln", "log", "log10", "log2",
        "lower", "ltrim", "mod", "nullif", "octet_length", "pi", "pow", "power", "printf", "quote", "radians",
        "replace", "round", "rtrim", "sign", "sin", "sinh", "soundex", "sqrt", "substr", "substring", "tan",
        "tanh", "trim", "trunc", "typeof", "unhex", "unicode", "unistr", "unistr_quote", "unlikely", "upper",
        "zeroblob",
    }
)
# fmt: on
"""Functions of their arguments alone; `count` is here because it counts rows in any order alike."""

# fmt: off
AGGREGATES = frozenset(
    {
        "avg", "cume_dist", "dense_rank", "first_value", "group_concat", "json_group_array", "json_group_object",
        "jsonb_group_array", "jsonb_group_object", "lag", "last_value", "lead", "max", "median", "min", "nth_value",
        "ntile", "percent_rank", "percentile", "percentile_cont", "percentile_disc", "rank", "row_number",
        "string_agg", "sum", "total",
    }
)
# fmt: on
"""Functions of many rows whose value may depend on the order in which the rows come: ties, rounding, concatenation."""

_CLOCK = {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP"}
_CHOOSING = {"DISTINCT", "EXCEPT", "GROUP", "INTERSECT", "LIMIT", "ORDER", "OVER"}
"""Words of clauses that keep one of several rows, or their order."""

_BEFORE_BRACKET = RESERVED | {
    "BY",
    "CAST",
    "FILTER",
    "GLOB",
    "LIKE",
    "MATCH",
    "MATERIALIZED",
    "OFFSET",
    "OVER",
    "REGEXP",
}
"""Words that may stand before a bracket without being a function."""


class Usage(Struct, frozen=True):
    """What the words of a statement tell: the functions it calls, all names in it, folded.

    `choosing`: the rows' order may decide what the result is.
    """

    functions: frozenset[str]
    names: frozenset[str]
    choosing: bool


def usage(tokens: Sequence[SqlToken]) -> Usage:
    """Return which functions a statement calls and whether it has a clause that makes it choose between rows."""
    names = frozenset(_name(token) for token in tokens if token.sort in (Sort.WORD, Sort.NAME))
    functions = {token.word.lower() for token in tokens if token.word in _CLOCK}
    functions |= {_name(tokens[place]) for place in range(len(tokens) - 1) if _is_call(tokens, place)}
    choosing = any(token.word in _CHOOSING for token in tokens) or any(
        token.word == "UNION" and follower.word != "ALL" for token, follower in pairwise(tokens)
    )
    return Usage(frozenset(functions), names, choosing or not functions <= SCALARS)


def volatile_names(functions: frozenset[str]) -> list[str]:
    """Return those functions whose value may change while no row does, in order of their names."""
    return sorted(functions - SCALARS - AGGREGATES)


def _is_call(tokens: Sequence[SqlToken], place: int) -> bool:
    token = tokens[place]
    if token.sort not in (Sort.WORD, Sort.NAME) or tokens[place + 1].text != "(" or token.word in _BEFORE_BRACKET:
        return False
    if place and tokens[place - 1].word == "AS":  # CAST(x AS VARCHAR(9))
        return False
    return not _is_header(tokens, place + 1)


def _is_header(tokens: Sequence[SqlToken], bracket: int) -> bool:
    """Return whether the bracket holds the column names of a common table expression: `name (a, b) AS (`."""
    place = bracket
    while place < len(tokens) and tokens[place].text != ")":
        place += 1
    after = [token.word or token.text for token in tokens[place + 1 : place + 4]]
    return after[:2] == ["AS", "("] or after[:2] in (["AS", "MATERIALIZED"], ["AS", "NOT"])


def _name(token: SqlToken) -> str:
    return fold(token.value)
