"""What the Typesense target does beyond the contract of all targets: keys that mean something in a path."""

import json

import httpx
import pytest

from brokers import PASSWORD, PASSWORD_IN_URL, Typesense
from changing import delete, insert
from tailrace.envelope.envelopes import envelope_of
from tailrace.message.base import Message
from tailrace.message.targets import target_of
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sink_url import parse

WORDS = TableSchema(TableName("shop", "words"), 1, (Column("word", Kind.STR), Column("n", Kind.I64)), ("word",))
KEYS = ["plain", ".", "..", "two words", "../words", "a/b", "`", "50%", "a&b=c", "ß"]


@pytest.fixture(scope="module")
def server():
    if reason := Typesense.missing():
        pytest.skip(reason)
    server = Typesense().start()
    yield server
    server.stop()


def message(change):
    wrapped = envelope_of("row").wrap(change, "id")
    return Message(change, "id", wrapped.value, wrapped.key)


def test_rows_go_by_their_keys_alone_whatever_these_mean_in_a_path(server):
    target = target_of(parse(f"typesense+http://127.0.0.1:{server.port}/{{table}}?api_key={PASSWORD_IN_URL}"), "search")
    target.open([WORDS])
    rows = [{"word": word, "n": number} for number, word in enumerate([*KEYS, "stays"])]
    wrapped = [message(insert(row, schema=WORDS, offset=number)) for number, row in enumerate(rows, 1)]
    assert target.send(wrapped, b"") == []
    gone = [message(delete(row, schema=WORDS, offset=number)) for number, row in enumerate(rows[:-1], 100)]
    assert target.send(gone, b"") == []
    target.close()
    path = f"http://127.0.0.1:{server.port}/collections/words/documents/export"
    answer = httpx.get(path, headers={"x-typesense-api-key": PASSWORD}, timeout=30)
    assert [json.loads(line)["id"] for line in answer.text.splitlines()] == ["stays"]
