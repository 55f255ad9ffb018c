"""Which shapes of sqlglot's tree we know to mean to SQLite what they seem to mean. Pure."""

from sqlglot import exp

from tailrace.sql.sqlite.query.function import SCALARS
from tailrace.sql.sqlite.query.relation import JoinKind, NotUnderstoodError

__all__ = ["is_plain", "join_kind", "refuse_unknown_parts"]

# fmt: off
_SCALAR_NODES = (
    exp.Abs, exp.And, exp.Case, exp.Cast, exp.Coalesce, exp.Exists, exp.Hex, exp.If, exp.Length, exp.Lower,
    exp.Nullif, exp.Or, exp.Round, exp.Substring, exp.Trim, exp.Upper,
)
# fmt: on
"""Nodes that sqlglot counts as functions and that compute from one row alone."""

_JOIN_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
}


def refuse_unknown_parts(node: exp.Expr, known: set[str]) -> None:
    """Raise unless all filled parts of a node are among the known ones."""
    unknown = [name for name, part in node.args.items() if part and name not in known]
    if unknown:
        raise NotUnderstoodError(f"{type(node).__name__}.{unknown[0]}")


def join_kind(join: exp.Join) -> tuple[JoinKind, bool]:
    """Return the kind of a join and whether it is a natural one."""
    refuse_unknown_parts(join, {"this", "side", "kind", "method", "on", "using"})
    kind = _JOIN_KINDS.get((join.side or "", join.kind or ""))
    method = join.method or ""
    if kind is None or method not in ("", "NATURAL"):
        raise NotUnderstoodError(f"{method} {join.side} {join.kind} join")
    return kind, method == "NATURAL"


def is_plain(tree: exp.Select) -> bool:
    """Return whether each row that passes the WHERE is one row of the result: nothing is computed over several rows."""
    if any(tree.args.get(name) for name in ("group", "having", "order", "limit", "offset", "distinct", "windows")):
        return False
    return all(
        _is_scalar(node) for projection in tree.expressions for node in projection.find_all(exp.Func, exp.Window)
    )


def _is_scalar(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in SCALARS and node.name.lower() != "count"
    return type(node) in _SCALAR_NODES
