"""What the errors of MySQL and MariaDB mean for a sink. Pure."""

import pymysql  # type: ignore[import-untyped]

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError

__all__ = ["sink_error"]

_ACCESS = frozenset({1044, 1045, 1698})
_NO_DATABASE = frozenset({1049})
_UNAVAILABLE = frozenset(
    {
        *(1021, 1037, 1040, 1041, 1042, 1114, 1129, 1135, 1203, 1226),  # memory, disks, connections that are too many
        *(1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2055, 4031),  # a lost connection
        *(1020, 1205, 1213, 1317, 1412, 1969, 3024, 3101),  # other transactions, and what takes too long
        *(1047, 1290, 1836),  # a server that is, for now, only read
    }
)
"""Errors that another try may answer."""


def sink_error(place: str, user: str, error: pymysql.Error) -> SinkError:
    """Return the error of the sink. What MySQL says may hold values and is not repeated."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    if code in _ACCESS:
        return SinkRefusedError(f"{place} refuses the user {user!r} or the password: fix the sink's URL")
    if code in _NO_DATABASE:
        return SinkRefusedError(f"{place} is not there: make it, or fix the sink's URL")
    if code in _UNAVAILABLE or isinstance(error, pymysql.InterfaceError):
        return SinkUnavailableError(f"{place} cannot be reached, or is busy (error {code})")
    return SinkRefusedError(f"MySQL refused it (error {code or type(error).__name__})")
