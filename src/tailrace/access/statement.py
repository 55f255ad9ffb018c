"""SQL statements of clients: which source a namespace names, who may run them, and whether they may write."""

from collections.abc import Mapping, Sequence

from tailrace.access.namespace import source_for
from tailrace.access.principal import Capability, Principal
from tailrace.model.errors import InvalidRequestError, PermissionDeniedError, ResultTooLargeError, SourceAbilityError
from tailrace.model.value import Value
from tailrace.source.base import CAPTURE_ONLY, QuerySource, RunLimits
from tailrace.source.statement import StatementResult, StatementRunner

__all__ = ["Statements"]

_LIMITS = RunLimits(rows_max=10_000, bytes_max=4 << 20, timeout_s=10.0)
"""Bounds of one statement and its answer."""

_SQL_CHARACTERS_MAX = 256 << 10
"""Longest statement."""


class Statements:
    """Runs statements in the sources. `runners` are those of sources that may be written to. For one event loop.

    None stands for a source that can only be captured.
    """

    def __init__(self, readers: Mapping[str, QuerySource | None], runners: Mapping[str, StatementRunner]) -> None:
        self._readers = dict(readers)
        self._runners = dict(runners)

    async def execute(
        self, principal: Principal, namespace: str, sql: str, arguments: Sequence[Value]
    ) -> StatementResult:
        """Run one statement. Those that only read tables do not wait for those that write.

        Raises:
            PermissionDeniedError: The principal may not run it; who sees only some tables or rows may run none.
            UnknownSourceError: The namespace names no source.
            InvalidRequestError: The database does not take the statement, or may only be read.
            SourceAbilityError: The source can only be captured.
            ResultTooLargeError: The result exceeds a limit.
            QueryTimeoutError: It took too long.
            SourceUnavailableError: The database cannot be reached.
        """
        principal.require(Capability.READ)
        source = source_for(principal, namespace, self._readers)
        if principal.tables is not None or principal.rows:
            raise PermissionDeniedError(f"Access denied to SQL in '{source}': only some of its rows are yours")
        if len(sql) > _SQL_CHARACTERS_MAX:
            raise InvalidRequestError(f"the statement is longer than {_SQL_CHARACTERS_MAX} characters")
        reads = self._readers[source]
        if reads is None:
            raise SourceAbilityError(source, CAPTURE_ONLY)
        bound = reads.dialect.bind(arguments, len(arguments))
        try:
            result = await reads.run(sql, bound, _LIMITS)
        except ResultTooLargeError:
            raise
        except InvalidRequestError as error:
            # The reading side refuses what writes, and some that reads; the other side has the last word.
            if source not in self._runners:
                raise InvalidRequestError(
                    f"{error} (here SQL may only read: see the setting gateway.sql_write)"
                ) from error
            if not principal.may(Capability.WRITE):
                raise InvalidRequestError(f"{error} (without the capability write, SQL may only read)") from error
            return await self._runners[source].execute(sql, bound, _LIMITS)
        return StatementResult(result.columns, result.rows, 0)
