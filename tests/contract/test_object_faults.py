"""What sinks in object storage do when it fails, throttles, loses answers, is slow, or refuses: a proxy makes it so."""

import os
import random
import subprocess
import sys

import boto3
import pytest

from databases import free_port
from object_proxy import Fault, ObjectProxy
from object_server import KEY, ObjectServer
from sink_changes import ChangingSource
from sink_places import DeltaObjectsPlace, IcebergObjectsPlace, ParquetObjectsPlace, SpreadDeltaObjectsPlace, rows_of
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sinks import sink_of
from trying import patiently

LONG = bool(os.environ.get("LONG_TESTS"))
ROUNDS = 40 if LONG else 6
CASES = {
    "parquet-append": (ParquetObjectsPlace, Mode.APPEND),
    "delta-append": (DeltaObjectsPlace, Mode.APPEND),
    "delta-current": (DeltaObjectsPlace, Mode.CURRENT),
    "delta-spread-append": (SpreadDeltaObjectsPlace, Mode.APPEND),
    "iceberg-append": (IcebergObjectsPlace, Mode.APPEND),
}
COMMITS = {"parquet": "/_manifest.json", "delta": "/_delta_log/", "iceberg": ".metadata.json"}
"""The object by which a batch is there, or, of Iceberg, that its catalog names then."""

TRANSIENT = [Fault.ERROR, Fault.ERROR_AFTER, Fault.THROTTLED, Fault.CUT, Fault.CUT_AFTER, Fault.SLOW]


@pytest.fixture
def proxy(servers):
    proxy = ObjectProxy(servers.get(ObjectServer).port)
    yield proxy
    proxy.close()


@pytest.fixture(params=list(CASES))
def place(request, tmp_path, servers, proxy):
    kind, mode = CASES[request.param]
    place = kind(tmp_path, mode, servers)
    place.url = place.url.replace(place.server.options(), place.server.options(proxy.endpoint))
    place.commit = COMMITS[request.param.partition("-")[0]]
    return place


@pytest.fixture
def source():
    return ChangingSource()


def begun(place, source):
    """Return a sink that has a batch, and the table that it is of."""
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    orders.insert(2, "Bob", 2.0)
    sink = place.sink()
    sink.open(source.schemas)
    sink.apply(source.batch())
    return sink, orders


def changed(source, orders):
    """Return a further batch of four rows of mode append."""
    source.commit()
    orders.update(1, total=9.0)
    orders.delete(2)
    orders.insert(3, "Eve", 3.0)
    return source.batch()


def check(place, sink, orders, appended):
    assert rows_of(sink, orders.schema) == orders.rows
    assert len(place.contents("orders")) == (appended if place.mode is Mode.APPEND else len(orders.rows))


@pytest.mark.parametrize("fault", TRANSIENT)
@pytest.mark.parametrize("what", ["commit", "marker", "data"])
def test_a_batch_is_there_once_whatever_befalls_a_put(place, proxy, source, fault, what):
    if what == "marker" and place.mode is Mode.APPEND and "parquet" in place.url:
        pytest.skip("there is no marker beside the manifest")
    sink, orders = begun(place, source)
    batch = changed(source, orders)
    befallen = proxy.once(fault, "PUT", {"commit": place.commit, "marker": "/_tailrace/", "data": ".parquet"}[what])
    patiently(sink.apply, batch)
    assert befallen() == 1
    check(place, sink, orders, 6)
    fresh = place.sink()
    fresh.open(source.schemas)
    assert fresh.applied() == 1
    fresh.apply(batch)
    check(place, fresh, orders, 6)


@pytest.mark.parametrize("fault", [Fault.ERROR_AFTER, Fault.CUT_AFTER])
def test_a_commit_that_took_effect_though_no_answer_ever_came_is_not_made_again(place, proxy, source, fault):
    """So often that all retries end, and nobody can look whether it did: the batch fails, and is given again."""
    sink, orders = begun(place, source)
    batch = changed(source, orders)
    proxy.once(fault, "PUT GET", place.commit, times=1000)
    with pytest.raises(SinkUnavailableError):
        sink.apply(batch)
    proxy.mend()
    patiently(sink.apply, batch)
    check(place, sink, orders, 6)


def test_an_outage_is_unavailable_and_ends_with_it(place, proxy, source):
    sink, orders = begun(place, source)
    batch = changed(source, orders)
    for fault in (Fault.THROTTLED, Fault.ERROR, Fault.CUT):
        proxy.always(fault)
        with pytest.raises(SinkUnavailableError) as unavailable:
            sink.apply(batch)
        if fault is Fault.THROTTLED and "iceberg" not in place.url:
            assert "asks for fewer requests" in str(unavailable.value)
        assert KEY["secret_access_key"] not in repr(unavailable.value)
    proxy.mend()
    patiently(sink.apply, batch)
    check(place, sink, orders, 6)


def test_credentials_that_are_no_longer_accepted_are_refused_with_what_to_do(place, proxy, source):
    sink, orders = begun(place, source)
    batch = changed(source, orders)
    proxy.always(Fault.FORBIDDEN)
    with pytest.raises(SinkRefusedError, match="does not accept the credentials: fix them") as refused:
        sink.apply(batch)
    assert KEY["secret_access_key"] not in repr(refused.value)
    with pytest.raises(SinkRefusedError, match="does not accept the credentials: fix them"):
        place.sink().open(source.schemas)
    proxy.mend()
    sink.apply(batch)
    check(place, sink, orders, 6)


def test_a_bucket_that_is_not_there_is_refused_with_what_to_do(place, source):
    source.table().insert(1, "Ann", 1.0)
    url = place.url.replace(place.bucket, "no-such-bucket")
    sink = sink_of(url, place.mode, pipeline="copy")
    with pytest.raises(SinkRefusedError, match="there is no such bucket: make it, or fix the sink's URL"):
        sink.open(source.schemas)


def test_a_server_that_is_not_there_is_unavailable(place, source, proxy):
    source.table().insert(1, "Ann", 1.0)
    url = place.url.replace(f"{proxy.port}", f"{free_port()}")
    sink = sink_of(url, place.mode, pipeline="copy")
    with pytest.raises(SinkUnavailableError) as unavailable:
        sink.open(source.schemas)
    assert KEY["secret_access_key"] not in repr(unavailable.value)


def test_commits_are_conditional(place, proxy, source):
    sink, orders = begun(place, source)
    sink.apply(changed(source, orders))
    puts = [headers for method, path, headers in proxy.requests if method == "PUT" and place.commit in path]
    markers = [headers for method, path, headers in proxy.requests if method == "PUT" and "/_tailrace/" in path]
    assert puts
    if place.commit != COMMITS["iceberg"]:  # whose condition is a row of the catalog
        assert all(headers.get("if-none-match") == "*" for headers in puts)
    assert all("if-none-match" in headers or "if-match" in headers for headers in markers)
    assert sum("if-match" in headers for headers in markers) == (1 if markers else 0)


def test_nothing_is_lost_or_repeated_where_requests_fail_at_random(place, proxy, source, request):
    chance = random.Random(request.node.name)
    sink, orders = begun(place, source)
    batches = []
    for number in range(ROUNDS):
        source.commit()
        orders.insert(100 + number, "Eve", 3.0)
        orders.update(1, total=float(number))
        batches.append(source.batch())
    proxy.slow_s = 0.01
    proxy.choose = lambda _method, _path: chance.choice(TRANSIENT) if chance.random() < 0.15 else None
    for batch in batches:
        patiently(sink.apply, batch)
        if chance.random() < 0.3:
            sink = place.sink()
            patiently(sink.open, source.schemas)
    proxy.mend()
    check(place, sink, orders, 2 + 3 * ROUNDS)


@pytest.fixture(scope="module")
def guarded():
    """An S3 server that checks signatures and rights; yields its endpoint, and keys with and without rights."""
    port = free_port()
    environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "7"}
    command = [sys.executable, "-c", "from moto.server import main; main()", "-p", str(port)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        server = ObjectServer()
        server.port, server.process = port, process
        server.wait()
        yield server, set_up(server.endpoint)
    finally:
        process.kill()
        process.wait()


def set_up(endpoint):
    given = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    given |= {"aws_access_key_id": "root", "aws_secret_access_key": "root"}
    iam, s3 = boto3.client("iam", **given), boto3.client("s3", **given)
    s3.create_bucket(Bucket="guarded")
    keys = {}
    for user, effect in (("writer", "Allow"), ("stranger", "Deny")):
        iam.create_user(UserName=user)
        found = iam.create_access_key(UserName=user)["AccessKey"]
        keys[user] = {"access_key_id": found["AccessKeyId"], "secret_access_key": found["SecretAccessKey"]}
        policy = f'{{"Version": "2012-10-17", "Statement": [{{"Effect": "{effect}", "Action": "*", "Resource": "*"}}]}}'
        iam.put_user_policy(UserName=user, PolicyName="rights", PolicyDocument=policy)
    return keys


@pytest.mark.parametrize("sink_url", ["delta:s3://guarded/lake/{table}", "parquet:s3://guarded/out"])
def test_signatures_and_rights_are_those_that_the_server_asks_for(guarded, source, sink_url):
    server, keys = guarded
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    batch = source.batch()

    def sink(**key):
        return sink_of(f"{sink_url}?{server.options(**key)}", Mode.APPEND, pipeline="copy")

    with pytest.raises(SinkRefusedError, match="does not accept the credentials"):
        sink(access_key_id="AKIANOBODY", secret_access_key="s3cret").open(source.schemas)
    with pytest.raises(SinkRefusedError, match="does not accept the credentials"):
        sink(**keys["writer"] | {"secret_access_key": "wrong"}).open(source.schemas)
    with pytest.raises(SinkRefusedError, match="denies access: allow this user"):
        sink(**keys["stranger"]).open(source.schemas)
    writer = sink(**keys["writer"])
    writer.open(source.schemas)
    writer.apply(batch)
    assert rows_of(writer, orders.schema) == orders.rows
