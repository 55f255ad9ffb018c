"""Facts about subscriptions as a document."""

import msgspec

from feeding import feeding
from tailrace.interface.skeindb.export import ExportDocument, export_of
from tailrace.interface.skeindb.restore import restore
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, SourceTarget, SubscribeRequest

ONE = {"t": "i64", "v": 1}
TABLE = {"Table": {"db": "app", "table": "users"}}


async def test_the_document_has_the_shape_of_the_seed():
    async with feeding() as world:
        await world.subscribe(filters={"key": (ONE,)}, auto_ack=True)
        await world.subscribe((Op.UPDATE,), filters={"columns": ("name",), "where": "id > 1"})
        await world.service.subscription(2).pause()
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
        await world.service.subscription(1).pause()
        made = world.service.subscriptions()
        document = msgspec.json.decode(msgspec.json.encode(export_of(made)), type=ExportDocument)
        await world.service.subscription(1).close()
        assert await restore(document, world.scoped) == 1
        (found,) = world.service.subscriptions()
        assert msgspec.structs.replace(found, created_time_us=made[0].created_time_us) == made[0]
        assert (await world.subscribe()).id == 2


async def test_subscriptions_to_a_source_are_exported_unless_they_go_with_a_stream():
    async with feeding() as world:
        for names, transient in ((("users", "later"), False), ((), False), ((), True)):
            await world.service.subscribe(
                SubscribeRequest(
                    SourceTarget("app", names),
                    filter=FilterOptions(tuple(Op)),
                    include=Include(before=True, after=True),
                    format=Format.OBJECTS_JSON,
                    transient=transient,
                )
            )
        made = world.service.subscriptions()
        document = msgspec.json.decode(msgspec.json.encode(export_of(made)), type=ExportDocument)
        assert [entry.target for entry in document.subs] == [
            {"Source": {"db": "app", "tables": ["users", "later"]}},
            {"Source": {"db": "app", "tables": []}},
        ]
        await restore(document, world.scoped)
        found = world.service.subscriptions()
        assert [(s.target, s.filter, s.transient) for s in found] == [(s.target, s.filter, s.transient) for s in made]
