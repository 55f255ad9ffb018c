"""What targets have in common whose clients are written for an event loop: it runs in a thread of its own."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from tailrace.message.base import Message, Refusal, TargetTraits
from tailrace.message.target.loop_thread import LoopThread
from tailrace.model.errors import SinkError
from tailrace.model.table import TableName, TableSchema

__all__ = ["LoopTarget"]

_T = TypeVar("_T")


class LoopTarget(ABC):
    """A target that keeps no mark. After any failure its connection is closed; the next call connects again."""

    traits = TargetTraits()

    failures: ClassVar[tuple[type[Exception], ...]]
    """What the client raises that is a failure of the sink."""

    def __init__(self, name: str) -> None:
        self._loop = LoopThread(name)

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect, and make the places that are missing."""
        self._run(self._prepare({schema.table for schema in schemas}))

    def mark(self) -> bytes | None:
        """It keeps none."""
        return None

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Publish messages and wait until all are confirmed."""
        return self._run(self._publish(messages)) if messages else []

    def close(self) -> None:
        """Disconnect, and end the thread that answers the server's questions."""
        self._loop.close(self._disconnected())

    @abstractmethod
    async def _prepare(self, tables: Collection[TableName]) -> None:
        """Connect if need be, and make the places of tables that are missing."""

    @abstractmethod
    async def _publish(self, messages: Sequence[Message]) -> list[Refusal]:
        """Connect if need be, publish messages, and return what was refused."""

    @abstractmethod
    def _disconnected(self) -> Coroutine[Any, Any, None] | None:
        """Forget the connection; return what closes it, if there is one."""

    @abstractmethod
    def _failure(self, error: Exception) -> SinkError:
        """Return what an error of the client means."""

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return self._loop.run(work)
        except SinkError:
            self.close()
            raise
        except self.failures as error:
            self.close()
            raise self._failure(error) from None
