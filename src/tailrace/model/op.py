"""What a change did."""

from collections.abc import Iterable
from enum import IntEnum

__all__ = ["ROWLESS", "ROW_OPS", "Op", "wanted_ops"]


class Op(IntEnum):
    """Kind of a change. The numbers are written to disk: they never change.

    SCHEMA and TRUNCATE are of a table, not of a row: their key is `NO_KEY`, and a truncation has no images.
    """

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    SCHEMA = 4
    TRUNCATE = 5

    @property
    def word(self) -> str:
        """Return the lower-case word that the wires and the command line use."""
        return self.name.lower()


ROW_OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)
"""The ops of single rows, which a subscription is for unless it says otherwise."""

ROWLESS = frozenset({Op.SCHEMA, Op.TRUNCATE})
"""The ops of whole tables. Conditions on keys, columns and rows do not apply to them."""


def wanted_ops(ops: Iterable[Op]) -> frozenset[Op]:
    """Return the ops that a reader gets who asks for these.

    A truncation removes rows: whoever wants to know of removed rows gets it, asked for or not.
    """
    asked = frozenset(ops)
    return asked | {Op.TRUNCATE} if Op.DELETE in asked else asked
