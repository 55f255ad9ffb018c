"""Facts about subscriptions as a document."""

import msgspec
import pytest

from feeding import feeding
from tailrace.delivery.http.export import ExportDocument, ExportedSubscription, draft_of, export_of
from tailrace.model.errors import InvalidRequestError, UnknownTableError
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, SourceTarget

ONE = {"t": "i64", "v": 1}
TABLE = {"Table": {"db": "app", "table": "users"}}


async def test_the_document_has_the_shape_of_the_seed():
    async with feeding() as world:
        await world.subscribe(filters={"key": (ONE,)}, auto_ack=True)
        await world.subscribe((Op.UPDATE,), filters={"columns": ("name",), "where": "id > 1"})
        await world.service.pause(2)
        found = msgspec.to_builtins(export_of(world.service.subscriptions()))
    assert found == {
        "format_version": 8,
        "next_id": 3,
        "subs": [
            {
                "id": "sub_0000000000000001",
                "acked_offset": 0,
                "paused": False,
                "options": {"format": "plain_json", "pk": [ONE], "auto_ack": True},
                "target": TABLE,
            },
            {
                "id": "sub_0000000000000002",
                "acked_offset": 0,
                "paused": True,
                "options": {"format": "plain_json", "ops": ["update"], "columns": ["name"], "where": "id > 1"},
                "target": TABLE,
            },
        ],
    }


async def test_what_was_exported_is_restored_to_the_letter():
    async with feeding() as world:
        await world.append(Op.INSERT, Op.INSERT)
        await world.subscribe(filters={"bounds": {"lower_bound": ONE}, "cel": "op == 'insert'"}, auto_ack=True)
        await world.service.pause(1)
        made = world.service.subscriptions()
        document = msgspec.json.decode(msgspec.json.encode(export_of(made)), type=ExportDocument)
        await world.service.close(1)
        await world.service.restore(dict(draft_of(entry, world.service) for entry in document.subs))
        (found,) = world.service.subscriptions()
        assert msgspec.structs.replace(found, created_time_us=made[0].created_time_us) == made[0]
        assert (await world.subscribe()).id == 2


async def test_subscriptions_to_a_source_are_exported_unless_they_go_with_a_stream():
    async with feeding() as world:
        for names, transient in ((("users", "later"), False), ((), False), ((), True)):
            await world.service.subscribe_source(
                SourceTarget("app", names),
                filter_options=FilterOptions(tuple(Op)),
                include=Include(before=True, after=True),
                format_=Format.OBJECTS_JSON,
                transient=transient,
            )
        made = world.service.subscriptions()
        document = msgspec.json.decode(msgspec.json.encode(export_of(made)), type=ExportDocument)
        assert [entry.target for entry in document.subs] == [
            {"Source": {"db": "app", "tables": ["users", "later"]}},
            {"Source": {"db": "app", "tables": []}},
        ]
        drafts = dict(draft_of(entry, world.service) for entry in document.subs)
        await world.service.restore(drafts)
        found = world.service.subscriptions()
        assert [(s.target, s.filter, s.transient) for s in found] == [(s.target, s.filter, s.transient) for s in made]


async def test_both_spellings_of_a_target_and_of_an_id_are_read():
    async with feeding() as world:
        for sub_id, number in (("sub_1", 1), ("sub_12", 12), ("sub_000000000000000c", 12)):
            for target in (TABLE, {"kind": "table", "db": "app", "table": "users"}):
                entry = ExportedSubscription(id=sub_id, acked_offset=99, target=target)
                found, draft = draft_of(entry, world.service)
                assert (found, draft.target.tables[0].name, draft.cursor) == (number, "users", 0)


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"id": "sub_0"}, InvalidRequestError),
        ({"id": "sub_ffffffffffffffff"}, InvalidRequestError),
        ({"id": "1"}, InvalidRequestError),
        ({"target": {"Query": {"query_id": "q"}}}, InvalidRequestError),
        ({"target": {}}, InvalidRequestError),
        ({"target": {"Table": {"db": "app", "table": "nobody"}}}, UnknownTableError),
        ({"options": {"ops": ["merge"]}}, InvalidRequestError),
    ],
)
async def test_what_is_no_subscription_is_refused(members, error):
    async with feeding() as world:
        entry = {"id": "sub_1", "acked_offset": 0, "target": TABLE, **members}
        with pytest.raises(error):
            draft_of(msgspec.convert(entry, ExportedSubscription), world.service)
