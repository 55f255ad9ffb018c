"""What the errors of MySQL mean."""

import pymysql
import pytest

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.sink.mysql import sink_error

AGAIN = {
    1020: "the row was changed meanwhile",
    1040: "too many connections",
    1047: "a node of the cluster is not ready",
    1205: "a lock was waited for too long",
    1213: "a deadlock",
    1290: "the server is only read",
    1836: "the server is only read",
    1927: "the connection was killed",
    1969: "the statement took too long",
    2013: "the answer was lost",
    3101: "the transaction was rolled back by the group",
}


@pytest.mark.parametrize("code", AGAIN)
def test_what_may_pass_is_tried_again(code):
    error = sink_error("MySQL at db:3306", "ann", pymysql.OperationalError(code, "s3cret"))
    assert isinstance(error, SinkUnavailableError)
    assert "s3cret" not in str(error)


def test_a_connection_that_was_closed_is_made_again():
    assert isinstance(sink_error("MySQL", "ann", pymysql.InterfaceError(0, "")), SinkUnavailableError)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1045, "MySQL at db:3306 refuses the user 'ann' or the password"),
        (1049, "MySQL at db:3306 does not exist"),
        (1062, "MySQL refused it (error 1062)"),
        (1406, "MySQL refused it (error 1406)"),
    ],
)
def test_what_does_not_pass_by_itself_is_refused(code, text):
    error = sink_error("MySQL at db:3306", "ann", pymysql.DataError(code, "s3cret"))
    assert isinstance(error, SinkRefusedError)
    assert text in str(error)
    assert "s3cret" not in str(error)


def test_an_error_without_a_number_is_refused():
    assert "(error ProgrammingError)" in str(sink_error("MySQL", "ann", pymysql.ProgrammingError("s3cret")))
