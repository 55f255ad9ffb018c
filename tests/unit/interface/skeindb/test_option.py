"""Facts about the options of subscriptions in params."""

import pytest

from tailrace.delivery.http.place import PlaceParams, start_of
from tailrace.interface.skeindb.message import SubscribeParams
from tailrace.interface.skeindb.option import filter_options_of, options_of
from tailrace.model.errors import InvalidRequestError
from tailrace.model.op import Op
from tailrace.model.start import After, AtTime, Earliest, Latest
from tailrace.model.subscription import FilterOptions, Format, Include, Subscription, TableTarget
from tailrace.model.table import TableName

ONE = {"t": "i64", "v": 1}


@pytest.mark.parametrize(
    ("place", "start"),
    [
        (None, Latest()),
        ("latest", Latest()),
        (" Earliest ", Earliest()),
        (0, After(0)),
        (17, After(17)),
        (PlaceParams(offset=5), After(5)),
        (PlaceParams(timestamp=1_500), AtTime(1_500_000)),
        (PlaceParams(timestamp="1970-01-01T00:00:02.5Z"), AtTime(2_500_000)),
        ("1970-01-01T01:00:00+01:00", AtTime(0)),
        ("1970-01-02", AtTime(86_400_000_000)),
        ("0001-01-01T00:00:00+14:00", AtTime(-62135647200000000)),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(place, start):
    assert start_of(place, "from") == start


@pytest.mark.parametrize("place", ["", "soon", "2026-13-01", "9" * 500, PlaceParams(), PlaceParams(1, 2)])
def test_what_is_no_start_is_refused_by_its_name(place):
    with pytest.raises(InvalidRequestError, match="`from`"):
        start_of(place, "from")


def test_options_are_shown_as_the_params_were():
    given = {
        "ops": ["insert", "delete"],
        "pk": [ONE],
        "pk_range": {"lower_bound": ONE},
        "columns": ["name"],
        "where": "id > 1",
        "cel": "op == 'insert'",
    }
    options = filter_options_of(SubscribeParams(**given))
    target = TableTarget((TableName("app", "users"),))
    subscription = Subscription(1, "app", target, options, Include(after=True), Format.PLAIN_JSON, 0, 0)
    assert options_of(subscription) == {**given, "include": {"before": False, "after": True}, "auto_ack": False}


def test_what_is_left_out_or_empty_is_no_filter():
    plain = FilterOptions((Op.INSERT, Op.UPDATE, Op.DELETE))
    assert filter_options_of(SubscribeParams()) == plain
    assert filter_options_of(SubscribeParams(ops=[], pk=[], columns=[])) == plain


@pytest.mark.parametrize("params", [{"ops": ["merge"]}, {"ops": [""]}, {"where": " "}, {"cel": ""}])
def test_nonsense_is_refused(params):
    with pytest.raises(InvalidRequestError):
        filter_options_of(SubscribeParams(**params))
