"""The target for OpenSearch against the answers that its documentation promises."""

import hashlib
import json
from decimal import Decimal

import pytest

from changing import ORDERS, delete, insert, truncate, update
from fake_opensearch import FakeOpenSearch
from tailrace.envelope.envelopes import envelope_of
from tailrace.message.base import Message
from tailrace.message.target.opensearch import mapping
from tailrace.message.target.search import document_id
from tailrace.message.targets import target_of
from tailrace.model.chunk import Change
from tailrace.model.errors import ConfigError, SinkRefusedError, SinkUnavailableError
from tailrace.model.op import Op
from tailrace.model.table import Column, Identity, Kind, TableName, TableSchema
from tailrace.model.value import Text
from tailrace.sink_url import parse


@pytest.fixture
def server():
    fake = FakeOpenSearch().listen()
    yield fake
    fake.close()


@pytest.fixture
def target(server):
    target = target_of(parse(f"opensearch+http://admin:admin@127.0.0.1:{server.port}/{{source}}-{{table}}"), "search")
    target.open([ORDERS])
    yield target
    target.close()


def message(change):
    wrapped = envelope_of("row").wrap(change, "id")
    return Message(change, "id", wrapped.value, wrapped.key)


def row(number, **named):
    return {"id": number, "customer": f"customer {number}", **named}


def test_rows_become_documents_and_go_with_them(server, target):
    first = [message(insert(row(number), offset=number)) for number in range(1, 4)]
    then = [message(update(row(1), row(1, total=Decimal("1.5")), offset=4)), message(delete(row(2), offset=5))]
    assert target.send(first, b"") == []
    assert target.send(then, b"") == []
    assert server.sources("shop-orders") == {
        "1": {"id": 1, "customer": "customer 1", "total": "1.5"},
        "3": {"id": 3, "customer": "customer 3"},
    }


def test_giving_messages_again_in_any_order_changes_nothing(server, target):
    messages = [
        message(insert(row(1), offset=1)),
        message(update(row(1), row(1, paid=True), offset=2)),
        message(delete(row(1), offset=3)),
        message(insert(row(1, paid=False), offset=4)),
        message(insert(row(2), offset=5)),
        message(delete(row(2), offset=6)),
    ]
    target.send(messages, b"")
    after = server.sources("shop-orders")
    assert after == {"1": {"id": 1, "customer": "customer 1", "paid": False}}
    for again in (messages, messages[::-1], messages[2:4]):
        assert target.send(again, b"") == []
        assert server.sources("shop-orders") == after


def test_a_document_that_does_not_fit_is_named_without_its_values_and_the_rest_is_kept(server, target):
    bad = row(2, paid="perhaps")
    refusals = target.send([message(insert(one, offset=one["id"])) for one in (row(1), bad, row(3))], b"")
    assert [(one.place, one.reason) for one in refusals] == [(1, "the search server answers mapper_parsing_exception")]
    assert "perhaps" in refusals[0].answer
    assert server.sources("shop-orders").keys() == {"1", "3"}


def test_a_server_that_is_busy_is_tried_again_and_what_it_took_is_not_harmed(server, target):
    messages = [message(insert(row(number), offset=number)) for number in range(1, 6)]
    server.busy = 2
    with pytest.raises(SinkUnavailableError, match="429"):
        target.send(messages, b"")
    assert target.send(messages, b"") == []
    assert len(server.sources("shop-orders")) == 5


def test_an_answer_that_is_lost_costs_nothing(server, target):
    messages = [message(insert(row(number), offset=number)) for number in range(1, 6)]
    server.swallowed = 1
    with pytest.raises(SinkUnavailableError):
        target.send(messages, b"")
    assert target.send(messages, b"") == []
    assert len(server.sources("shop-orders")) == 5


def test_large_batches_go_in_several_requests(server, target):
    text = "x" * 1_000_000
    assert target.send([message(insert(row(n, customer=text), offset=n)) for n in range(1, 21)], b"") == []
    assert server.bulks == 3
    assert len(server.sources("shop-orders")) == 20


def test_a_request_that_is_too_large_goes_in_parts_and_a_document_that_is_by_itself_is_refused(server, target):
    server.bytes_max = 1_000
    messages = [
        message(insert(row(n, customer="x" * size), offset=n)) for n, size in enumerate((1, 2_000, 500, 500), 1)
    ]
    refusals = target.send([*messages, message(delete(row(5), offset=5))], b"")
    assert [(one.place, one.reason) for one in refusals] == [(1, "larger than the search server takes")]
    assert server.sources("shop-orders").keys() == {"1", "3", "4"}


def test_an_index_is_made_of_the_tables_schema_and_given_the_columns_that_it_lacks(server, target):
    assert server.mappings["shop-orders"] == mapping(ORDERS)["properties"]
    wider = TableSchema(ORDERS.table, 4, (*ORDERS.columns, Column("note", Kind.STR)), ORDERS.key)
    assert target.send([message(insert(row(1, note="n"), schema=wider))], b"") == []
    assert server.mappings["shop-orders"]["note"]["type"] == "text"
    again = target_of(parse(f"opensearch+http://admin:admin@127.0.0.1:{server.port}/shop-orders"), "search")
    again.open([wider])
    again.close()


def test_a_column_that_has_another_type_in_the_index_is_refused(server, target):
    other = TableSchema(ORDERS.table, 4, (Column("id", Kind.I64), Column("customer", Kind.I64)), ORDERS.key)
    again = target_of(parse(f"opensearch+http://admin:admin@127.0.0.1:{server.port}/shop-orders"), "search")
    with pytest.raises(SinkRefusedError, match=r"'shop-orders' refuses columns.*illegal_argument_exception"):
        again.open([other])
    again.close()


def test_wrong_credentials_are_told_without_showing_them(server):
    target = target_of(parse(f"opensearch+http://admin:hunter2@127.0.0.1:{server.port}/{{table}}"), "search")
    with pytest.raises(SinkRefusedError, match="credentials") as caught:
        target.open([ORDERS])
    assert "hunter2" not in str(caught.value)
    target.close()


@pytest.mark.parametrize(
    ("columns", "values", "id_"),
    [
        ((Kind.I64,), [12], "12"),
        ((Kind.STR,), ["a b/c"], "a b/c"),
        ((Kind.I64,), [{"t": "str", "v": "12"}], '[{"t":"str","v":"12"}]'),
        ((Kind.ANY,), ["12"], '["12"]'),
        ((Kind.I64, Kind.STR), [1, "x"], '[1,"x"]'),
        ((Kind.STR,), [""], "sha256-" + hashlib.sha256(b'[""]').hexdigest()),
        ((Kind.STR,), ["x" * 513], "sha256-" + hashlib.sha256(b'["%s"]' % (b"x" * 513)).hexdigest()),
    ],
)
def test_the_id_of_a_document_tells_keys_apart(columns, values, id_):
    named = tuple(Column(f"c{place}", kind) for place, kind in enumerate(columns))
    schema = TableSchema(TableName("shop", "t"), 1, named, tuple(column.name for column in named))
    key = json.dumps(values, separators=(",", ":")).encode()
    assert document_id(Change(1, 1, 0, 0, Op.INSERT, schema, key, None, b"{}")) == id_


@pytest.mark.parametrize(
    "url", ["opensearch+http://h", "opensearch+http://h/a/b", "opensearch+http://h/{table}?size=1"]
)
def test_a_url_that_is_wrong_is_refused(url):
    with pytest.raises(ConfigError):
        target_of(parse(url), "search")


@pytest.mark.parametrize("path", ["all", "{table}"])
def test_tables_do_not_share_an_index_in_which_rows_with_one_key_would_replace_each_other(server, path):
    target = target_of(parse(f"opensearch+http://admin:admin@127.0.0.1:{server.port}/{path}"), "search")
    others = [TableSchema(TableName("shop", name), 1, ORDERS.columns, ORDERS.key) for name in ("lines", "LINES")]
    target.open(others[:1])
    with pytest.raises(SinkRefusedError, match="tables lines and LINES would both go into"):
        target.open(others[1:])
    target.close()


def test_a_truncation_removes_the_documents_of_older_changes_and_leaves_those_of_newer_ones(server, target):
    older = [insert(row(number), offset=number) for number in range(1, 1500)]
    target.send([message(one) for one in older], b"")
    target.send([message(insert(row(9000), offset=9000))], b"")
    sent = [message(truncate(offset=2000)), message(insert(row(1), offset=2001))]
    for _ in range(2):  # given again, it is the same
        assert target.send(sent, b"") == []
        assert sorted(server.sources("shop-orders")) == ["1", "9000"]


def test_a_refusal_behind_a_truncation_is_named_by_its_place(server, target):
    bad = Change(3, 1, 0, 0, Op.INSERT, ORDERS, b"[2]", None, b'{"id":2,"paid":"perhaps"}')
    given = [message(insert(row(1), offset=1)), message(truncate(offset=2)), message(bad)]
    (refusal,) = target.send(given, b"")
    assert refusal.place == 2
    assert server.sources("shop-orders") == {}


def test_a_table_whose_rows_no_key_tells_apart_has_no_documents(target):
    alike = TableSchema(TableName("shop", "lines"), 1, (Column("text", Kind.STR),), identity=Identity.WHOLE_ROW)
    with pytest.raises(SinkRefusedError, match="primary key or a unique index"):
        target.open([alike])


def test_a_row_whose_document_is_not_there_has_what_was_sent_and_a_warning_says_so(server, target, caplog):
    whole = {"id": 1, "customer": "a", "total": None, "paid": True, "at": None, "photo": None, "more": {"a": 1}}
    assert target.send([message(update(None, {"id": 1, "customer": "b"}, offset=3))], b"") == []
    assert server.sources("shop-orders") == {"1": {"id": 1, "customer": "b"}}
    assert "no document to take them from" in caplog.text
    caplog.clear()
    messages = [
        message(insert({**whole, "more": Text(Kind.JSON, '{"a":1}')}, offset=4)),
        message(update(None, {"id": 1, "customer": "c"}, offset=5)),
        message(delete({"id": 2}, offset=6)),
        message(insert({"id": 2, "customer": "d"}, offset=7)),
    ]
    assert target.send(messages, b"") == []
    assert server.sources("shop-orders")["1"] == {**whole, "customer": "c"}
    assert caplog.text == ""


def test_a_partial_row_that_comes_late_changes_nothing(server, target):
    messages = [message(insert(row(1), offset=4)), message(update(None, {"id": 1, "customer": "old"}, offset=3))]
    for one in messages:
        assert target.send([one], b"") == []
    assert server.sources("shop-orders") == {"1": row(1)}
