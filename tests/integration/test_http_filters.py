"""Facts about the filters of subscriptions over the RPC interface."""

import pytest

from feeding import TIME_US, schema_of
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind
from web import web

pytestmark = pytest.mark.usefixtures("one_process_and_workers")

SUB = "sub_0000000000000001"
SUBSCRIBE = "cdc.subscribe_table"
USERS = {"db": "app", "table": "users"}
BOTH = {"include": {"before": True, "after": True}, "format": "plain_json"}


def i64(number):
    return {"t": "i64", "v": number}


PAIRS = schema_of("pairs", key=("a", "b"), columns=(Column("a", Kind.I64), Column("b", Kind.STR)))
KEYLESS = schema_of("keyless", key=())

REFUSED = [
    # table, options -> a word of the message
    ("users", {"ops": ["merge"]}, "merge"),
    ("users", {"ops": [""]}, "op"),
    ("users", {"ops": "insert"}, "ops"),
    ("users", {"columns": [""]}, "column"),
    ("users", {"columns": ["  "]}, "column"),
    ("users", {"columns": ["nobody"]}, "nobody"),
    ("users", {"columns": "name"}, "columns"),
    ("users", {"format": "xml"}, "format"),
    ("users", {"include": []}, "include"),
    ("users", {"include": {"before": 1}}, "before"),
    ("users", {"include": {"now": True}}, "now"),
    ("keyless", {"pk": [i64(1)]}, "no primary key"),
    ("users", {"pk": [i64(1), i64(2)]}, "2 values"),
    ("pairs", {"pk": [i64(1)]}, "2 columns"),
    ("users", {"pk": [1]}, "pk"),
    ("users", {"pk": [{"t": "i64"}]}, "pk"),
    ("users", {"pk": i64(1)}, "pk"),
    ("users", {"pk_range": {}}, "lower_bound"),
    ("users", {"pk_range": {"lower_bound": None}}, "lower_bound"),
    ("users", {"pk_range": {"from": i64(1)}}, "pk_range"),
    ("users", {"pk_range": []}, "pk_range"),
    ("users", {"pk_range": {"lower_bound": [i64(1), i64(2)]}}, "2 values"),
    ("users", {"pk_range": {"lower_bound": i64(2), "upper_bound": i64(1)}}, "above"),
    ("keyless", {"pk_range": {"lower_bound": i64(1)}}, "no primary key"),
    ("users", {"where": ""}, "where"),
    ("users", {"where": "nobody = 1"}, "nobody"),
    ("users", {"where": "id ="}, "id ="),
    ("users", {"where": "(" * 5000 + "id"}, ""),
    ("users", {"where": 1}, "where"),
    ("users", {"cel": "nobody == 1"}, "nobody"),
    ("users", {"cel": "op =="}, ""),
    ("users", {"from": "soon"}, "from"),
    ("users", {"from": 99}, "99"),
    ("users", {"from": -1}, "from"),
    ("users", {"from": {"offset": 1, "timestamp": 2}}, "either"),
    ("users", {"shard": 1}, "shard 0"),
    ("users", {"auto_ack": "yes"}, "auto_ack"),
    ("users", {"nonsense": 1}, "nonsense"),
]


async def test_a_filter_that_cannot_be_is_refused():
    async with web() as world:
        for schema in (PAIRS, KEYLESS):
            await world.log.put_schema(schema)
        for table, options, word in REFUSED:
            code, message = await world.refusal(SUBSCRIBE, db="app", table=table, **options)
            assert code == "invalid_request", options
            assert word in message, options
        assert (await world.call("cdc.list"))["subscriptions"] == []


ROWS = [
    (Op.INSERT, 1, None, "Ada"),
    (Op.UPDATE, 1, "Ada", "Ada"),
    (Op.UPDATE, 2, "Bea", "Cleo"),
    (Op.DELETE, 3, "Dora", None),
    (Op.INSERT, 10, None, "Eve"),
]

CHOSEN = [
    ({}, [1, 2, 3, 4, 5]),
    ({"pk": []}, [1, 2, 3, 4, 5]),
    ({"pk": [i64(1)]}, [1, 2]),
    ({"pk": [{"t": "u64", "v": 1}]}, [1, 2]),
    ({"pk": [{"t": "str", "v": "1"}]}, []),
    ({"pk": [i64(1)], "ops": ["update"]}, [2]),
    ({"pk_range": {"lower_bound": i64(2)}}, [3, 4, 5]),
    ({"pk_range": {"upper_bound": i64(2)}}, [1, 2, 3]),
    ({"pk_range": {"lower_bound": i64(2), "upper_bound": i64(3)}}, [3, 4]),
    ({"pk_range": {"lower_bound": {"t": "str", "v": "2"}}}, []),
    ({"columns": ["name"]}, [1, 3, 4, 5]),
    ({"columns": ["id"], "ops": ["update"]}, []),
    ({"where": "name = 'Ada'"}, [1, 2]),
    ({"where": "before.name = 'Bea'"}, [3]),
    ({"where": "id > 2", "ops": ["insert"]}, [5]),
    ({"cel": "op == 'delete'"}, [4]),
    ({"cel": "row.name.startsWith('E')", "where": "id = 10"}, [5]),
    ({"shard": 0}, [1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("options", "offsets"), CHOSEN, ids=[str(case[0])[:60] for case in CHOSEN])
async def test_a_filter_chooses_and_outlives_a_restart(options, offsets, tmp_path):
    url = f"sqlite:///{tmp_path}/meta.db"
    async with web(url=url) as world:
        await world.call(SUBSCRIBE, **USERS, **options)
        await world.write(*ROWS)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=0)
        assert [event["seq"] for event in polled["events"]] == offsets
        assert polled["next_offset"] == 5
        log = world.log
    async with web(url=url, log=log) as world:
        await world.write(*ROWS * 10)
        polled = await world.call("cdc.poll", sub_id=SUB, from_offset=5)
        wanted = [offset + 5 * turn for turn in range(1, 11) for offset in offsets]
        assert [event["seq"] for event in polled["events"]] == wanted
        assert polled["next_offset"] == 55


async def test_images_are_cut_to_the_columns():
    async with web() as world:
        await world.call(SUBSCRIBE, **USERS, columns=["name"], **BOTH)
        await world.write(*ROWS * 10)
        events = (await world.call("cdc.poll", sub_id=SUB, from_offset=0))["events"]
        assert [(event.get("before"), event.get("after")) for event in events[:4]] == [
            (None, {"name": "Ada"}),
            ({"name": "Bea"}, {"name": "Cleo"}),
            ({"name": "Dora"}, None),
            (None, {"name": "Eve"}),
        ]
        few = (await world.call("cdc.poll", sub_id=SUB, from_offset=45))["events"]
        assert few == events[-len(few) :]
        assert len(few) == 4


async def test_a_composite_key_is_bounded_column_by_column():
    async with web() as world:
        schema_id = await world.log.put_schema(PAIRS)
        bound = [i64(1), {"t": "str", "v": "b"}]
        await world.call(SUBSCRIBE, db="app", table="pairs", format="plain_json", pk_range={"lower_bound": bound})
        draft = world.draft(schema_id, [(b'[1,"a"]'), (b'[1,"b"]'), (b'[0,"z"]'), (b'[2,"a"]')])
        await world.log.append([draft])
        events = (await world.call("cdc.poll", sub_id=SUB, from_offset=0))["events"]
        assert [event["pk"] for event in events] == [[1, "b"], [2, "a"]]


async def test_a_subscription_begins_where_it_is_told():
    async with web() as world:
        for number in range(4):
            await world.write(ROWS[0], time_us=TIME_US + number * 1_000_000)
        time_ms = TIME_US // 1000 + 1_500
        for start, offset in (
            ("latest", 4),
            ("earliest", 0),
            (3, 3),
            ({"offset": 1}, 1),
            ({"timestamp": time_ms}, 2),
            ("2100-01-01T00:00:00Z", 4),
            ("1999-12-31", 0),
        ):
            made = await world.call(SUBSCRIBE, **USERS, **{"from": start})
            assert made["offset"] == offset, start
            polled = await world.call("cdc.poll", sub_id=made["sub_id"], from_offset=0)
            assert len(polled["events"]) == 4 - offset


async def test_a_cursor_is_reset_forwards_and_back():
    async with web() as world:
        await world.call(SUBSCRIBE, **USERS)
        await world.write(*ROWS)
        for to, offset in ((4, 4), ("earliest", 0), ("latest", 5), ({"offset": 2}, 2)):
            assert await world.call("cdc.reset", sub_id=SUB, to=to) == {"sub_id": SUB, "acked_offset": offset}
            assert len((await world.call("cdc.poll", sub_id=SUB, from_offset=0))["events"]) == 5 - offset
        assert (await world.refusal("cdc.reset", sub_id=SUB, to=6))[0] == "invalid_request"


async def test_a_changed_table_ends_the_subscription_that_cannot_go_on_and_no_other():
    async with web() as world:
        for options in ({"columns": ["name"]}, {"where": "name = 'Ada'"}, {"pk": [i64(1)]}, {}):
            await world.call(SUBSCRIBE, **USERS, **options)
        await world.write(ROWS[0])
        renamed = schema_of("users", version=2, columns=(Column("id", Kind.I64), Column("title", Kind.STR)))
        await world.write(ROWS[0], schema=await world.log.put_schema(renamed))
        for number in (1, 2):
            poll = {"sub_id": f"sub_{number:016x}", "limit": 1}
            assert len((await world.call("cdc.poll", **poll, from_offset=0))["events"]) == 1
            code, message = await world.refusal("cdc.poll", **poll, from_offset=1)
            assert code == "conflict"
            assert "no longer fits" in message
            assert "name" in message
        for number in (3, 4):
            polled = await world.call("cdc.poll", sub_id=f"sub_{number:016x}", from_offset=0)
            assert len(polled["events"]) == 2


async def test_a_predicate_that_fails_ends_its_own_subscription():
    async with web() as world:
        await world.call(SUBSCRIBE, **USERS, cel="10 / row.id > 1")
        await world.call(SUBSCRIBE, **USERS)
        await world.write((Op.INSERT, 0, None, "Ada"))
        assert (await world.refusal("cdc.poll", sub_id=SUB, from_offset=0))[0] == "conflict"
        polled = await world.call("cdc.poll", sub_id="sub_0000000000000002", from_offset=0)
        assert len(polled["events"]) == 1
