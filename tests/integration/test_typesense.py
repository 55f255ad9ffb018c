"""What the Typesense target does beyond the contract of all targets: keys that mean something in a path."""

import json

import httpx
import pytest
from msgspec import structs

from brokers import PASSWORD, PASSWORD_IN_URL, Typesense
from changing import delete, insert, update
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


PAGES = TableSchema(
    TableName("shop", "pages"),
    1,
    (Column("id", Kind.STR), Column("title", Kind.STR), Column("body", Kind.STR), Column("views", Kind.U64)),
    ("id",),
)


def documents(server, collection):
    path = f"http://127.0.0.1:{server.port}/collections/{collection}/documents/export"
    answer = httpx.get(path, headers={"x-typesense-api-key": PASSWORD}, timeout=30)
    return {found["id"]: found for found in map(json.loads, answer.text.splitlines())}


@pytest.mark.parametrize("at_once", [1, 2, 10])
def test_a_document_keeps_the_fields_that_were_not_sent(server, at_once):
    url = f"typesense+http://127.0.0.1:{server.port}/{{table}}-{at_once}?api_key={PASSWORD_IN_URL}"
    target = target_of(parse(url), "search")
    target.open([PAGES])
    steps = [insert({"id": id_, "title": "t", "body": "long", "views": 2**63}, schema=PAGES) for id_ in ("a", "../b")]
    steps += [update(None, {"id": id_, "title": "u"}, schema=PAGES) for id_ in ("a", "../b", "absent")]
    steps += [update(None, {"id": "a", "body": None}, schema=PAGES), delete({"id": "absent"}, schema=PAGES)]
    messages = [message(structs.replace(one, offset=number)) for number, one in enumerate(steps, 1)]
    for _ in range(2):  # what is given again leads to the same
        for begin in range(0, len(messages), at_once):
            assert target.send(messages[begin : begin + at_once], b"") == []
        assert documents(server, f"pages-{at_once}") == {
            "a": {"id": "a", "title": "u", "views": str(2**63), "_offset": 6},
            "../b": {"id": "../b", "title": "u", "body": "long", "views": str(2**63), "_offset": 4},
        }
    target.close()


def test_a_document_is_refused_with_all_messages_that_it_is_made_of(server):
    target = target_of(parse(f"typesense+http://127.0.0.1:{server.port}/{{table}}-odd?api_key={PASSWORD_IN_URL}"), "s")
    odd = structs.replace(PAGES, columns=(*PAGES.columns[:3], Column("views", Kind.I64)))
    target.open([odd])
    steps = [
        insert({"id": "a", "title": "t", "body": "long", "views": "many"}, schema=odd),
        insert({"id": "b", "title": "t", "body": "long", "views": 1}, schema=odd),
        update(None, {"id": "a", "title": "u"}, schema=odd),
    ]
    messages = [message(structs.replace(one, offset=number)) for number, one in enumerate(steps, 1)]
    assert [one.place for one in target.send(messages, b"")] == [0, 2]
    assert documents(server, "pages-odd").keys() == {"b"}
    target.close()
