"""Facts about taking up the subscriptions of a document."""

import msgspec
import pytest

from feeding import feeding
from tailrace.interface.skeindb.export import ExportDocument, ExportedSubscription, export_of
from tailrace.interface.skeindb.restore import restore
from tailrace.model.errors import InvalidRequestError, UnknownTableError

TABLE = {"Table": {"db": "app", "table": "users"}}


def document(*entries):
    return ExportDocument(subs=[msgspec.convert(entry, ExportedSubscription) for entry in entries])


async def test_both_spellings_of_a_target_and_of_an_id_are_read():
    async with feeding() as world:
        for sub_id, number in (("sub_1", 1), ("sub_12", 12), ("sub_000000000000000c", 12)):
            for target in (TABLE, {"kind": "table", "db": "app", "table": "users"}):
                await restore(document({"id": sub_id, "acked_offset": 99, "target": target}), world.scoped)
                found = world.service.subscription(number).record
                assert (found.target.tables[0].name, found.cursor) == ("users", 0)


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
        ({"options": {"where": "nobody = 1"}}, InvalidRequestError),
    ],
)
async def test_if_one_is_no_subscription_none_is_taken_up(members, error):
    async with feeding() as world:
        good = {"id": "sub_7", "acked_offset": 0, "target": TABLE}
        with pytest.raises(error):
            await restore(document(good, good | {"id": "sub_1"} | members), world.scoped)
        assert export_of(world.service.subscriptions()).subs == []
