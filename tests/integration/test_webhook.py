"""Web hooks: signed requests that the published library verifies, in order for each row, to public places alone."""

import base64
import collections
import contextlib
import email.utils
import json
import socket
import ssl
import threading
from types import SimpleNamespace

import msgspec
import pytest
from standardwebhooks import Webhook

from certificates import Authority
from changing import insert
from hooking import receiving
from tailrace.clock import SystemClock
from tailrace.message.base import BusyError, Message
from tailrace.message.target.webhook import WebhookTarget, build, judged, resolved
from tailrace.message.targets import target_of
from tailrace.model.errors import ConfigError, SinkRefusedError, SinkUnavailableError
from tailrace.sink_url import parse

SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes!!!!").decode()


@pytest.fixture
def receiver():
    with receiving() as one:
        yield one


@pytest.fixture
def targets():
    opened = []

    def open_target(receiver, **options):
        given = {"secret": SECRET, "allow_private": "true", **options}
        query = "&".join(f"{name}={value}" for name, value in given.items())
        opened.append(target_of(parse(f"webhook+http://127.0.0.1:{receiver.port}/hook?{query}"), "orders"))
        opened[-1].open(())
        return opened[-1]

    yield open_target
    for one in opened:
        one.close()


def message(offset, key, headers=()):
    change = insert({"id": key, "customer": "Ann"}, offset=offset)
    value = json.dumps({"seq": offset, "key": key}).encode()
    return Message(change, f"shop/{offset}", value, b"[%d]" % key, headers)


def test_the_published_library_verifies_each_request(receiver, targets):
    one = message(7, 1, (("tailrace-offset", "7"),))
    assert targets(receiver).send([one], b"7") == []
    [(path, headers, body, _)] = receiver.requests
    assert path == "/hook"
    assert Webhook(SECRET).verify(body, headers) == {"seq": 7, "key": 1}
    assert (headers["webhook-id"], headers["tailrace-offset"]) == ("shop/7", "7")
    assert headers["content-type"] == "application/json"


def test_what_headers_cannot_hold_is_percent_encoded_there(receiver, targets):
    one = msgspec.structs.replace(message(7, 1, (("tailrace-table", "bücher%"),)), id="bücher/7")
    assert targets(receiver).send([one], b"7") == []
    [(_, headers, body, _)] = receiver.requests
    assert Webhook(SECRET).verify(body, headers)
    assert (headers["webhook-id"], headers["tailrace-table"]) == ("b%C3%BCcher/7", "b%C3%BCcher%25")


def test_an_id_has_no_full_stop_which_divides_what_is_signed(receiver, targets):
    odd = [msgspec.structs.replace(message(7, 1), id=f'shop/7/t/["a{part}b"]') for part in (".1.", "%2E1%2E")]
    assert targets(receiver, concurrency=1).send(odd, b"7") == []
    ids = [headers["webhook-id"] for _, headers, _, _ in receiver.requests]
    assert ids == ['shop/7/t/["a%2E1%2Eb"]', 'shop/7/t/["a%252E1%252Eb"]']
    for _, headers, body, _ in receiver.requests:
        Webhook(SECRET).verify(body, headers)


def test_an_answer_counts_by_its_status_however_long_it_goes_on(targets):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        receiver = SimpleNamespace(port=listening.getsockname()[1])

        def answer():
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    connection.sendall(b"x" * 10_000)

        thread = threading.Thread(target=answer)
        thread.start()
        assert targets(receiver).send([message(7, 1)], b"7") == []
        thread.join(30)
        assert not thread.is_alive()


def test_while_secrets_are_exchanged_a_request_is_signed_by_both(receiver, targets):
    other = "whsec_" + base64.b64encode(b"another secret of 28 bytes!!").decode()
    targets(receiver, secret=f"{SECRET}%20{other}").send([message(7, 1)], b"7")
    [(_, headers, body, _)] = receiver.requests
    for secret in (SECRET, other):
        Webhook(secret).verify(body, headers)


def test_messages_of_a_row_arrive_in_order_while_those_of_others_do_not_wait(receiver, targets):
    messages = [message(offset, offset % 5) for offset in range(200)]
    assert targets(receiver).send(messages, b"200") == []
    by_key = collections.defaultdict(list)
    for body in receiver.taken():
        event = json.loads(body)
        by_key[event["key"]].append(event["seq"])
    assert {key: seqs == sorted(seqs) for key, seqs in by_key.items()} == dict.fromkeys(range(5), True)
    assert sum(map(len, by_key.values())) == 200


def test_several_messages_go_together_as_an_array(receiver, targets):
    assert targets(receiver, batch=10, concurrency=1).send([message(n, n) for n in range(25)], b"25") == []
    assert [[event["seq"] for event in json.loads(body)] for body in receiver.taken()] == [
        list(range(10)), list(range(10, 20)), list(range(20, 25)),
    ]  # fmt: skip
    assert receiver.requests[0][1]["webhook-id"] == "shop/0~shop/9"


@pytest.mark.parametrize("batch", [1, 4])
def test_a_message_that_is_refused_is_named_with_those_of_its_row_behind_it_and_all_others_arrive(
    receiver, targets, batch
):
    receiver.answer = lambda headers, body: 422 if b'"seq": 5' in body else 200
    receiver.text = b'{"error":\r\n  "no such\x00customer \xff"}' + b"x" * 90_000
    messages = [message(offset, offset % 4) for offset in range(12)]
    refusals = targets(receiver, batch=batch).send(messages, b"12")
    assert [(one.place, one.reason) for one in refusals] == [
        (5, "the web hook answers 422"),
        (9, "it follows a message of the same row that was refused"),
    ]
    assert refusals[0].answer.startswith('{"error": "no such customer \ufffd"}xxx')
    assert len(refusals[0].answer) < 510
    assert refusals[1].answer == ""
    taken = [event for body in receiver.taken() for event in (json.loads(body) if batch > 1 else [json.loads(body)])]
    assert sorted(event["seq"] for event in taken) == [0, 1, 2, 3, 4, 6, 7, 8, 10, 11]


@pytest.mark.parametrize("status", [408, 429, 500, 503, None])
def test_what_has_arrived_of_a_batch_is_not_sent_again_with_it(receiver, targets, status):
    target = targets(receiver, concurrency=1)
    failing = [True]
    receiver.answer = lambda headers, body: status if failing[0] and b'"seq": 3' in body else 200
    messages = [message(offset, offset) for offset in range(6)]
    with pytest.raises(BusyError) as busy:
        target.send(messages, b"6")
    assert busy.value.arrived == 3
    failing[0] = False
    assert target.send(messages, b"6") == []
    assert [json.loads(body)["seq"] for body in receiver.taken()] == [0, 1, 2, 3, 4, 5]


def test_what_has_arrived_of_a_batch_is_known_although_something_else_was_sent_meanwhile(receiver, targets):
    target = targets(receiver, concurrency=1)
    receiver.answer = lambda headers, body: 503 if b'"seq": 3' in body else 200
    with pytest.raises(SinkUnavailableError):
        target.send([message(offset, offset) for offset in range(4)], b"4")
    receiver.answer = lambda headers, body: 200
    target.send([message(9, 9)], b"letter")
    target.send([message(offset, offset) for offset in range(4)], b"4")
    assert [json.loads(body)["seq"] for body in receiver.taken()] == [0, 1, 2, 9, 3]


@pytest.mark.parametrize(
    ("status", "text", "wanted_s"),
    [
        (429, "7", 7),
        (503, "7", 7),
        (503, "86400", 600),
        (503, email.utils.formatdate(2_000_000_000, usegmt=True), 600),
        (503, email.utils.formatdate(0, usegmt=True), 0),
        (503, "soon", 0),
        (503, "-5", 0),
        (500, None, 0),
    ],
)
def test_a_receiver_that_says_when_to_come_back_is_left_alone_until_then_within_bounds(
    receiver, targets, status, text, wanted_s
):
    receiver.answer = lambda headers, body: status
    receiver.headers = {} if text is None else {"Retry-After": text}
    with pytest.raises(BusyError) as busy:
        targets(receiver).send([message(7, 1)], b"7")
    assert busy.value.retry_after_s == wanted_s


def test_a_date_to_come_back_at_is_counted_from_now():
    at = email.utils.formatdate(1_700_000_030, usegmt=True)
    with pytest.raises(BusyError) as busy:
        judged(503, at, 1_700_000_000.0)
    assert busy.value.retry_after_s == 30


def test_of_several_addresses_the_next_one_is_tried_when_one_cannot_be_connected_to(receiver):
    url = f"webhook+http://two.example:{receiver.port}/?allow_private=true"
    addresses = ["127.0.0.2", "127.0.0.1"]
    target = WebhookTarget(build(parse(url), "orders").options, SystemClock(), lambda host, port: addresses)
    with pytest.raises(SinkUnavailableError):
        target.send([message(7, 1)], b"7")
    for offset in (7, 8):
        assert target.send([message(offset, 1)], b"%d" % offset) == []
    target.close()
    assert [headers["host"] for _, headers, _, _ in receiver.requests] == [f"two.example:{receiver.port}"] * 2


def test_the_options_of_a_web_hook_show_nothing_secret():
    options = build(parse(f"webhook+https://ann:s3cret@h/?bearer=s3cret&secret={SECRET}"), "orders").options
    assert f"{options} {options!r}" == " ".join(["the web hook at h:443"] * 2)


def test_a_request_whose_answer_is_lost_is_sent_again_with_the_same_id(receiver, targets):
    target = targets(receiver)
    receiver.answer = lambda headers, body: None
    with pytest.raises(SinkUnavailableError):
        target.send([message(7, 1)], b"7")
    receiver.answer = lambda headers, body: 200
    target.send([message(7, 1)], b"7")
    assert {headers["webhook-id"] for _, headers, _, _ in receiver.requests} == {"shop/7"}


@pytest.mark.parametrize(
    ("status", "why"), [(301, "moved"), (401, "credentials"), (404, "nothing at this address"), (410, "no more")]
)
def test_an_answer_that_is_about_all_messages_stops_the_sink(receiver, targets, status, why):
    receiver.answer = lambda headers, body: status
    with pytest.raises(SinkRefusedError, match=why):
        targets(receiver).send([message(7, 1)], b"7")


def test_a_receiver_that_is_not_there_is_unavailable_and_no_secret_is_named(receiver, targets):
    target = targets(receiver)
    receiver.close()
    with pytest.raises(SinkUnavailableError) as caught:
        target.send([message(7, 1)], b"7")
    assert SECRET not in str(caught.value)
    receiver.close = lambda: None


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "10.0.0.1",
        "169.254.169.254",
        "[::ffff:10.0.0.1]",
        "[2002:a00:1::1]",
        "[64:ff9b::a00:1]",
        "[::127.0.0.1]",
        "[::ffff:0:10.0.0.1]",
        "[64:ff9b:1::a00:1]",
        "[fec0::1]",
        "[2001:0:a00:1::]",
        "[fd00::1]",
        "2130706433",
        "0.0.0.0",
    ],
)
def test_a_private_place_is_refused_unless_it_is_allowed(host):
    target = target_of(parse(f"webhook+http://{host}:9/"), "orders")
    with pytest.raises(SinkRefusedError, match=r"private network.*allow_private=true"):
        target.open(())


def test_a_name_with_one_private_address_is_refused_and_the_address_that_was_looked_at_is_the_one_that_is_used():
    with pytest.raises(SinkRefusedError, match="private network"):
        resolved("two.example", 443, allow_private=False, resolve=lambda host, port: ["93.184.216.34", "10.0.0.1"])
    public = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"]
    assert resolved("a.example", 443, allow_private=False, resolve=lambda host, port: public) == public


def test_over_tls_the_certificate_is_that_of_the_name_in_the_url(tmp_path):
    ours, other = Authority(tmp_path), Authority(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.sign("server"))
    with receiving(context) as receiver:
        for host, ca, taken in (
            ("localhost", ours.file, True),
            ("localhost.localdomain", ours.file, False),
            ("localhost", other.file, False),
        ):
            url = f"webhook+https://{host}:{receiver.port}/?allow_private=true&ca={ca}"
            target = WebhookTarget(build(parse(url), "orders").options, SystemClock(), lambda host, port: ["127.0.0.1"])
            if taken:
                assert target.send([message(7, 1)], b"7") == []
            else:
                with pytest.raises(SinkUnavailableError, match="not trusted, see the option `ca`"):
                    target.send([message(7, 1)], b"7")
            target.close()


@pytest.mark.parametrize(
    "url",
    [
        "webhook+https:///x",
        "webhook+https://h/?secret=whsec_",
        "webhook+https://h/?batch=0",
        "webhook+https://h/?batch=ten",
        "webhook+https://h/?allow_private=perhaps",
        "webhook+https://h/?timeout=soon",
        "webhook+https://h/?colour=red",
        "webhook+https://h/?bearer=token%0A",
    ],
)
def test_a_url_that_is_wrong_is_refused(url):
    with pytest.raises(ConfigError):
        target_of(parse(url), "orders")
