"""What the Redis target does beyond the contract of all targets: keys, rights, memory, trimming, TLS."""

import pytest
import redis

from brokers import PASSWORD, PASSWORD_IN_URL, Redis
from certificates import Authority
from databases import free_port
from tailrace.message.target.redis import MARKS
from tailrace.message.targets import target_of
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.sink_url import parse
from target_messages import Teller
from trying import patiently


@pytest.fixture(scope="module")
def server():
    if reason := Redis.missing():
        pytest.skip(reason)
    server = Redis().start()
    yield server
    server.stop()


@pytest.fixture
def client(server):
    with redis.Redis(port=server.port, password=PASSWORD) as client:
        client.flushall()
        yield client


def target_at(server, name="sink", options="", user="", port=None):
    url = f"redis://{user}:{PASSWORD_IN_URL}@127.0.0.1:{port or server.port}/0?timeout=30{options}"
    return target_of(parse(url), name)


def opened(server, teller, **named):
    target = target_at(server, **named)
    target.open(teller.schemas)
    return target


def ids(client, stream="orders"):
    return [fields[b"tailrace-id"].decode() for _, fields in client.xrange(stream)]


def test_ids_of_entries_are_offsets_and_rows_of_a_snapshot_are_numbered_behind_them(server, client):
    teller = Teller()
    target = opened(server, teller)
    target.send(teller.changes(2), b"1")
    target.send([*teller.delete(0), *teller.snapshot(2)], b"2")
    target.send(teller.changes(1), b"3")
    target.close()
    assert [id_ for id_, _ in client.xrange("orders")] == [b"1-0", b"2-0", b"3-0", b"3-1", b"3-2", b"3-3", b"4-0"]


def test_a_stream_of_several_tables_takes_what_is_behind_its_newest_entry(server, client):
    teller = Teller("orders", "lines")
    target = opened(server, teller, options="&stream=all")
    orders = teller.changes(5)
    teller.offset = 100
    rows = teller.snapshot(3, table=1)
    teller.offset = 5
    more = teller.changes(5)
    for batch in (orders, rows, more[:3], more[3:]):
        target.send(batch, batch[-1].id.encode())
    assert ids(client, "all") == [message.id for message in [*orders, *rows, *more]]
    target.close()


def test_a_change_of_another_log_with_the_same_offset_is_not_taken_for_one_that_is_there(server, client):
    for number, text in enumerate(("old", "old", "new")):
        teller = Teller()
        target = opened(server, teller, name=f"sink{number}")
        target.send([teller.change(key, text) for key in range(3)], b"1")
        target.close()
    values = [fields[b"value"] for _, fields in client.xrange("orders")]
    assert [b"old" in value for value in values] == [True] * 3 + [False] * 3


def test_a_key_that_is_no_stream_refuses_its_messages_and_nothing_is_written(server, client):
    teller = Teller("orders", "lines")
    target = opened(server, teller)
    target.send(teller.changes(2), b"before")
    client.set("lines", "text")
    batch = [*teller.changes(2), *teller.changes(2, table=1)]
    assert [refusal.place for refusal in target.send(batch, b"after")] == [2, 3]
    assert (target.mark(), len(ids(client))) == (b"before", 2)
    assert not target.send(batch[:2], b"after")
    target.close()
    with pytest.raises(SinkRefusedError, match="'lines' of Redis is not a stream"):
        opened(server, teller)


def test_a_server_without_memory_is_unavailable_and_then_works(server, client):
    teller = Teller()
    target = opened(server, teller)
    messages = teller.changes(10)
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(SinkUnavailableError, match="cannot write now"):
            target.send(messages, b"10")
    finally:
        client.config_set("maxmemory", 0)
    assert target.mark() is None
    assert not target.send(messages, b"10")
    assert ids(client) == [message.id for message in messages]
    target.close()


def test_a_replica_that_may_only_be_read_is_unavailable(server, client):
    teller = Teller()
    target = opened(server, teller)
    client.replicaof("127.0.0.1", free_port())
    try:
        with pytest.raises(SinkUnavailableError):
            target.send(teller.changes(1), b"1")
    finally:
        client.replicaof("NO", "ONE")
    target.close()


def test_a_user_that_may_not_write_is_refused(server, client):
    teller = Teller()
    client.acl_setuser(
        "reader", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@read", "+@connection"]
    )
    target = opened(server, teller, user="reader")
    with pytest.raises(SinkRefusedError, match="check the permissions of the sink's user"):
        target.send(teller.changes(1), b"1")
    target.close()


def test_the_rights_that_the_reference_names_are_enough(server, client):
    names = ["eval", "xadd", "xinfo|stream", "xrange", "type", "hget", "hset", "hdel", "ping"]
    client.acl_setuser(
        "writer", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=[f"+{name}" for name in names]
    )
    teller = Teller()
    target = opened(server, teller, user="writer")
    messages = [*teller.changes(3), *teller.snapshot(3)]
    assert not target.send(messages, b"1")
    assert not target.send(messages[:2], b"2")
    assert target.mark() == b"2"
    assert ids(client) == [message.id for message in messages]
    target.close()


def test_of_two_processes_that_send_for_one_sink_one_is_refused(server, client):
    teller = Teller()
    first, second = (opened(server, teller) for _ in range(2))
    messages = teller.changes(4)
    first.send(messages[:2], b"2")
    with pytest.raises(SinkRefusedError, match="another process runs the sink 'sink'"):
        second.send(messages, b"4")
    first.send(messages[2:], b"4")
    assert ids(client) == [message.id for message in messages]
    first.close()
    second.close()


def test_a_server_that_has_lost_everything_is_gone_on_with(server, client):
    teller = Teller()
    target = opened(server, teller)
    messages = teller.changes(6)
    target.send(messages[:2], b"2")
    client.flushall()
    with pytest.raises(SinkUnavailableError, match="has lost the last writes"):
        target.send(messages[2:4], b"4")
    assert target.mark() is None
    assert not target.send(messages[2:4], b"4")
    assert not target.send(messages[4:], b"6")
    assert ids(client) == [message.id for message in messages[2:]]
    target.close()


@pytest.mark.parametrize("back", [1, 2], ids=["as it was found", "as it was in between"])
def test_a_server_that_is_back_where_it_was_before_is_gone_on_with(server, client, back):
    teller = Teller()
    messages = teller.changes(8)
    first = opened(server, teller)
    first.send(messages[:2], b"2")
    first.close()
    target = opened(server, teller)
    for number in range(1, 3):
        if number == back:
            kept = client.hget(MARKS, "sink")
        target.send(messages[2 * number : 2 * number + 2], b"%d" % number)
    client.hset(MARKS, "sink", kept)
    with pytest.raises(SinkUnavailableError, match="has lost the last writes"):
        target.send(messages[6:], b"8")
    assert not target.send(messages[6:], b"8")
    assert ids(client) == [message.id for message in messages]
    target.close()


def test_a_stream_is_kept_about_as_long_as_the_sink_says(server, client):
    teller = Teller()
    target = opened(server, teller, options="&maxlen=100")
    for number in range(20):
        target.send(teller.changes(100), b"%d" % number)
    assert 100 <= client.xlen("orders") < 400
    target.close()


def test_a_batch_that_is_too_much_for_one_step_is_cut(server, client, monkeypatch):
    monkeypatch.setattr("tailrace.message.target.redis._PART_MESSAGES_MAX", 7)
    teller = Teller()
    target = opened(server, teller)
    messages = [*teller.changes(20), *teller.snapshot(30)]
    assert not target.send(messages, b"all")
    assert target.mark() == b"all"
    assert ids(client) == [message.id for message in messages]
    target.close()


def test_a_part_that_is_executed_late_is_not_sent_again(server, client):
    """The server stalls with a request in hand, is given up, and executes it when it goes on."""
    teller = Teller()
    target = target_of(parse(f"redis://:{PASSWORD_IN_URL}@127.0.0.1:{server.port}/0?timeout=0.3"), "sink")
    patiently(target.open, teller.schemas)
    rows = teller.snapshot(20)
    server.pause()
    try:
        for _ in range(3):
            with pytest.raises(SinkUnavailableError):
                target.send(rows[:15], b"15")
    finally:
        server.go_on()
    assert not patiently(target.send, rows[:10], b"10")
    assert not patiently(target.send, rows[10:], b"20")
    assert ids(client) == [message.id for message in rows]
    target.close()


def test_streams_are_written_over_tls_to_servers_that_the_authority_vouches_for(tmp_path):
    if reason := Redis.missing():
        pytest.skip(reason)
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")

    class TlsRedis(Redis):
        def command(self):
            tls = ["--tls-port", str(self.port), "--tls-cert-file", certificate, "--tls-key-file", key]
            rest = [*tls, "--tls-ca-cert-file", authority.file, "--tls-auth-clients", "no", "--port", "0"]
            return [*super().command(), *rest]

        def ready(self):
            return b"Ready to accept connections" in (self.directory / "log").read_bytes()

    server = TlsRedis()
    try:
        server.start()
        teller = Teller()
        url = f"rediss://:{PASSWORD_IN_URL}@127.0.0.1:{server.port}/0?timeout=30"
        target = target_of(parse(f"{url}&ca={authority.file}"), "sink")
        target.open(teller.schemas)
        assert not target.send(teller.changes(3), b"3")
        assert target.mark() == b"3"
        target.close()
        other = Authority(tmp_path, "another")
        distrusting = target_of(parse(f"{url}&ca={other.file}"), "sink")
        with pytest.raises(SinkRefusedError, match="certificate"):
            distrusting.open(teller.schemas)
        distrusting.close()
    finally:
        server.stop()


def test_what_sinks_keep_is_in_one_hash(server, client):
    teller = Teller()
    for name in ("one", "two"):
        target = opened(server, teller, name=name)
        target.send([], b"mark of %s" % name.encode())
        target.close()
    kept = client.hgetall(MARKS)
    assert {name: record.partition(b" ")[2] for name, record in kept.items()} == {
        b"one": b"mark of one",
        b"two": b"mark of two",
    }
