"""Tables whose rows are edges of a graph, as the configuration declares them."""

from msgspec import Struct

__all__ = ["EdgeTable"]


class EdgeTable(Struct, frozen=True, forbid_unknown_fields=True):
    """How the rows of a table are read as edges. Either `type` or `type_column` is set, not both."""

    source_column: str
    """Column that holds where the edge begins."""

    target_column: str
    """Column that holds where it ends."""

    type: str = ""
    """Type of all its edges."""

    type_column: str = ""
    """Column that holds the type of each edge."""
