"""Streams and polls can tell changes in the envelopes of other systems."""

import json

import msgspec
import pytest

from tailrace.envelope.envelopes import WHOLE
from tailrace.interface.skeindb.message import PollParams
from tailrace.model.op import Op
from web import timeless, web

pytestmark = pytest.mark.usefixtures("one_process_and_workers")

SUB = "sub_0000000000000001"
OPS = [Op.INSERT, Op.UPDATE, Op.DELETE]
TOLD = {
    "tailrace": lambda value: value["op"],
    "debezium": lambda value: {"c": "insert", "u": "update", "d": "delete"}[value["op"]],
    "debezium-schema": lambda value: {"c": "insert", "u": "update", "d": "delete"}[value["payload"]["op"]],
    "cloudevents": lambda value: value["type"].removeprefix("tailrace."),
    "maxwell": lambda value: value["type"],
}


@pytest.mark.parametrize("envelope", WHOLE)
async def test_all_ways_to_read_a_subscription_tell_the_same_in_an_envelope(envelope):
    async with web() as world:
        await world.subscribe()
        await world.append(*OPS)
        async with world.stream(SUB, f"?envelope={envelope}") as stream:
            records = [await stream.record() for _ in OPS]
        assert [(record["id"], record["event"]) for record in records] == [
            ("1", "insert"), ("2", "update"), ("3", "delete"),
        ]  # fmt: skip
        values = [timeless(json.loads(record["data"])) for record in records]
        assert [TOLD[envelope](value) for value in values] == ["insert", "update", "delete"]
        async with world.socket(f"/{SUB}?envelope={envelope}") as socket:
            frames = await socket.records(len(OPS))
        assert [(frame["id"], frame["event"], timeless(frame["data"])) for frame in frames] == [
            (int(record["id"]), record["event"], value) for record, value in zip(records, values, strict=True)
        ]
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0, envelope=envelope)
        assert [timeless(event) for event in polled["events"]] == values


async def test_an_envelope_has_both_images_where_the_subscription_names_none():
    async with web() as world:
        await world.subscribe()
        await world.append(Op.INSERT, Op.UPDATE)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0, envelope="debezium")
        assert [(one["before"] is None, one["after"] is None) for one in polled["events"]] == [
            (True, False), (False, False),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "row"), [(("id",), {"id": 1}), (("name",), {"id": None, "name": "Ann"}), ((), {"id": 1, "name": "Ann"})]
)
async def test_a_schema_in_an_envelope_is_of_the_columns_that_are_told(columns, row):
    async with web() as world:
        await world.subscribe(filters={"columns": columns})
        await world.write((Op.INSERT, 1, None, "Ann"))
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0, envelope="debezium-schema")
        (event,) = polled["events"]
        (after,) = [one for one in event["schema"]["fields"] if one["field"] == "after"]
        fields = {one["field"]: one["optional"] for one in after["fields"]}
        assert event["payload"]["after"] == row
        assert fields.keys() == row.keys()
        assert all(fields[name] for name in row if row[name] is None)


@pytest.mark.parametrize("envelope", ["avro", "row", "cloudevents-binary"])
async def test_an_envelope_that_is_not_to_be_had_is_refused_with_those_that_are(envelope):
    async with web() as world:
        await world.subscribe()
        async with world.stream(SUB, f"?envelope={envelope}") as stream:
            assert stream.status == 400
        code, message = await world.refusal("cdc.poll", sub_id=SUB, from_offset=0, envelope=envelope)
        assert code == "invalid_request"
        assert f"`envelope` is one of {', '.join(WHOLE)}" in message


def test_what_a_poll_may_name_is_what_streams_may_name():
    _, components = msgspec.json.schema_components([PollParams])
    assert components["PollParams"]["properties"]["envelope"]["enum"] == ["", *WHOLE]
