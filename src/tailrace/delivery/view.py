"""How events are to look: the wire, and what a subscription wants of each change."""

from collections.abc import Callable

from msgspec import Struct

from tailrace.delivery.encoded import Encoded
from tailrace.model.chunk import Chunk
from tailrace.model.subscription import Format, Include, Subscription
from tailrace.subscription.filter import Rows
from tailrace.subscription.query.query_filter import InvalidationMark

__all__ = ["View", "Wire", "view_of"]


class Wire:
    """A form that events have on a connection: its name in metrics, and what makes events of the rows of a chunk.

    `by_columns` tells for a view whether many events are made by Arrow or compiled code, which let other threads run:
    then a worker thread makes them. Each interface has its own wires; a wire is equal to itself alone.
    """

    __slots__ = ("by_columns", "encode", "name")

    def __init__(
        self,
        name: str,
        encode: Callable[[Chunk, Rows, "View"], Encoded],
        by_columns: Callable[["View"], bool] = lambda _view: False,
    ) -> None:
        self.name = name
        self.encode = encode
        self.by_columns = by_columns

    def __repr__(self) -> str:
        return f"Wire({self.name!r})"


_IMAGES_OF = {
    (False, False): (),
    (True, False): ("before",),
    (False, True): ("after",),
    (True, True): ("before", "after"),
}


class View(Struct, frozen=True, cache_hash=True):
    """All that decides an event's bytes besides the change. Feeds with equal views share them."""

    wire: Wire
    format: Format
    include: Include
    columns: tuple[str, ...] = ()
    """Columns to which images are cut; none for all."""

    mark: InvalidationMark | None = None
    """What makes the changes invalidations of a query."""

    envelope: str = ""
    """Name of the envelope that changes are wrapped in; empty for the wire's own events."""

    @property
    def images(self) -> tuple[str, ...]:
        """Return the names of the wanted images."""
        return _IMAGES_OF[self.include.before, self.include.after]


def view_of(wire: Wire, subscription: Subscription, envelope: str = "") -> View:
    """Return how a subscription wants its events. An envelope has both images, unless the subscription names some."""
    include = subscription.include
    if envelope and not (include.before or include.after):
        include = Include(before=True, after=True)
    return View(wire, subscription.format, include, envelope=envelope)
