"""Facts about row security."""

import sqlite3
from enum import StrEnum

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from feeding import chunk_of, schema_of
from held import held_memory
from tailrace.access.principal import ANONYMOUS, Principal
from tailrace.model.commit import Draft
from tailrace.model.errors import InvalidPredicateError, PermissionDeniedError
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.model.table import Column, Kind, TableName
from tailrace.sql.dialect import WithoutSql, dialect_of
from tailrace.subscription.filter import Filter
from tailrace.subscription.restrict import HIDDEN, RestrictedChunks, Restriction, Restrictions, check_rows

USERS = schema_of("users")
OTHERS = schema_of("others")
CHANGE = msgspec.json.encode({"ddl": "ALTER TABLE users …"})


def restriction(rows=None, tables=None):
    principal = Principal("p", tables=None if tables is None else frozenset(tables), rows=rows or {})
    return Restrictions().get(principal, "app")


def image(key, name):
    return msgspec.json.encode({"id": key, "name": name})


def chunk(*changes, schemas=(USERS, OTHERS)):
    """Return a chunk of changes given as op, schema number, names before and after; None is no image."""
    draft = Draft("p", 1)
    for key, (op, schema, before, after) in enumerate(changes):
        if op is Op.SCHEMA:
            draft.add(op, schema, b"[]", after=CHANGE)
        elif op is Op.TRUNCATE:
            draft.truncate(schema)
        else:
            images = [None if name is ... else image(key, name) for name in (before, after)]
            draft.add(op, schema, b"[%d]" % key, before=images[0], after=images[1])
    return chunk_of(schemas, draft)


def seen(made):
    """Return what a chunk shows of each change: op, key, the names before and after."""
    columns = [made.batch.column(name).to_pylist() for name in ("op", "key", "before", "after")]
    return [
        (op, key, *(cell and msgspec.json.decode(cell).get("name", "ddl") for cell in (before, after)))
        for op, key, before, after in zip(*columns, strict=True)
    ]


MINE = {"app.users": "name = 'mine'"}
NOTHING = (HIDDEN, b"[]", None, None)


@pytest.mark.parametrize(
    ("op", "before", "after", "expected"),
    [
        (Op.INSERT, ..., "mine", (Op.INSERT, b"[0]", None, "mine")),
        (Op.INSERT, ..., "other", NOTHING),
        (Op.INSERT, ..., None, NOTHING),
        (Op.DELETE, "mine", ..., (Op.DELETE, b"[0]", "mine", None)),
        (Op.DELETE, "other", ..., NOTHING),
        (Op.DELETE, None, ..., NOTHING),
        (Op.UPDATE, "mine", "mine", (Op.UPDATE, b"[0]", "mine", "mine")),
        (Op.UPDATE, "other", "mine", (Op.INSERT, b"[0]", None, "mine")),
        (Op.UPDATE, None, "mine", (Op.INSERT, b"[0]", None, "mine")),
        (Op.UPDATE, "mine", "other", (Op.DELETE, b"[0]", "mine", None)),
        (Op.UPDATE, "mine", None, (Op.DELETE, b"[0]", "mine", None)),
        (Op.UPDATE, "other", "other", NOTHING),
        (Op.UPDATE, ..., "mine", (Op.UPDATE, b"[0]", None, "mine")),
        (Op.UPDATE, ..., "other", (Op.DELETE, b"[0]", None, None)),
        (Op.DELETE, ..., ..., (Op.DELETE, b"[0]", None, None)),
        (Op.SCHEMA, ..., ..., (Op.SCHEMA, b"[]", None, "ddl")),
        (Op.TRUNCATE, ..., ..., (Op.TRUNCATE, b"[]", None, None)),
    ],
    ids=str,
)
def test_a_change_is_seen_by_the_images_that_are(op, before, after, expected):
    assert seen(restriction(MINE).apply(chunk((op, 1, before, after)))) == [expected]


@pytest.mark.parametrize("path", ["app.users", "app.Users", "app.USERS"])
@pytest.mark.parametrize("table", ["users", "Users"])
def test_a_predicate_is_of_its_table_whatever_the_capitals_of_either(path, table):
    changes = chunk((Op.INSERT, 1, ..., "other"), (Op.INSERT, 1, ..., "mine"), schemas=(schema_of(table),))
    made = restriction({path: "name = 'mine'"})
    assert [row[0] for row in seen(made.apply(changes))] == [HIDDEN, Op.INSERT]
    assert made.visible([image(1, "other"), image(1, "mine")], schema_of(table)) == [False, True]


def test_of_two_predicates_that_differ_in_the_capitals_of_the_table_both_hold():
    made = restriction({"app.users": "name = 'a' OR name = 'b'", "app.Users": "name = 'b' OR name = 'c'"})
    assert made.visible([image(1, name) for name in "abc"], USERS) == [False, True, False]


def test_a_row_is_seen_if_the_predicate_is_true_and_not_if_it_is_null():
    changes = chunk((Op.INSERT, 1, ..., None), (Op.INSERT, 1, ..., "x"))
    assert [row[0] for row in seen(restriction({"app.users": "name <> 'mine'"}).apply(changes))] == [HIDDEN, Op.INSERT]
    assert [row[0] for row in seen(restriction({"app.users": "NULL"}).apply(changes))] == [HIDDEN, HIDDEN]
    assert [row[0] for row in seen(restriction({"app.users": "1"}).apply(changes))] == [Op.INSERT, Op.INSERT]


def test_a_constant_predicate_sees_no_image_that_is_not_there():
    changed = restriction({"app.users": "1"}).apply(chunk((Op.UPDATE, 1, ..., "x"), (Op.UPDATE, 1, ..., ...)))
    assert seen(changed) == [(Op.UPDATE, b"[0]", None, "x"), (Op.DELETE, b"[1]", None, None)]


KEY, MINE_ROW, OTHER_ROW = b'{"id":1}', b'{"id":1,"name":"mine"}', b'{"id":1,"name":"other"}'


@pytest.mark.parametrize(
    ("op", "before", "after", "expected"),
    [
        (Op.INSERT, None, KEY, (HIDDEN, None, None)),
        (Op.UPDATE, KEY, MINE_ROW, (Op.UPDATE, None, MINE_ROW)),
        (Op.UPDATE, KEY, OTHER_ROW, (Op.DELETE, None, None)),
        (Op.UPDATE, MINE_ROW, KEY, (Op.UPDATE, MINE_ROW, KEY)),
        (Op.UPDATE, OTHER_ROW, KEY, (HIDDEN, None, None)),
        (Op.UPDATE, KEY, KEY, (Op.DELETE, None, None)),
        (Op.UPDATE, None, KEY, (Op.DELETE, None, None)),
        (Op.UPDATE, None, None, (Op.DELETE, None, None)),
        (Op.DELETE, KEY, None, (Op.DELETE, None, None)),
        (Op.DELETE, MINE_ROW, None, (Op.DELETE, MINE_ROW, None)),
        (Op.DELETE, OTHER_ROW, None, (HIDDEN, None, None)),
    ],
    ids=str,
)
def test_where_the_row_before_is_not_known_it_may_have_been_seen(op, before, after, expected):
    draft = Draft("p", 1)
    draft.add(op, 1, b"[1]", before=before, after=after)
    made = restriction(MINE).apply(chunk_of([USERS], draft)).batch
    assert tuple(made.column(name)[0].as_py() for name in ("op", "before", "after")) == expected
    assert made.column("key")[0].as_py() == (b"[]" if expected[0] == HIDDEN else b"[1]")


def test_what_an_update_did_not_send_of_a_row_that_comes_into_sight_is_sent_from_the_row_before():
    wide = schema_of("users", columns=(*USERS.columns, Column("photo", Kind.STR), Column("note", Kind.STR)))
    draft = Draft("p", 1)
    draft.add(Op.UPDATE, 1, b"[1]", before=b'{"id":1,"name":"other","photo":"p"}', after=b'{"id":1,"name":"mine"}')
    draft.add(Op.UPDATE, 1, b"[1]", before=b'{"id":1,"photo":"p"}', after=b'{"id":1,"name":"mine","note":"n"}')
    made = restriction(MINE).apply(chunk_of([wide], draft)).batch
    assert made.column("op").to_pylist() == [Op.INSERT, Op.UPDATE]
    assert made.column("before").to_pylist() == [None, None]
    assert [msgspec.json.decode(after) for after in made.column("after").to_pylist()] == [
        {"id": 1, "name": "mine", "photo": "p"},
        {"id": 1, "name": "mine", "photo": "p", "note": "n"},
    ]


@pytest.mark.parametrize("op", [Op.UPDATE, Op.DELETE])
@pytest.mark.parametrize(("predicate", "expected"), [("id = 1", True), ("id = 2", False)])
def test_a_predicate_on_the_key_needs_no_row_before(op, predicate, expected):
    draft = Draft("p", 1)
    draft.add(op, 1, b"[1]", after=b'{"name":"x"}' if op is Op.UPDATE else None)
    made = restriction({"app.users": predicate}).apply(chunk_of([USERS], draft)).batch
    assert made.column("op").to_pylist() == [op if expected else HIDDEN]


def test_a_row_of_a_snapshot_that_lacks_what_the_predicate_reads_is_not_seen():
    assert restriction({"app.users": "name IS NULL"}).visible([KEY, image(1, None)], USERS) == [False, True]


def test_a_table_that_is_not_granted_is_hidden_with_its_schema_changes():
    changes = chunk(
        (Op.INSERT, 2, ..., "x"), (Op.SCHEMA, 2, ..., ...), (Op.INSERT, 1, ..., "x"), (Op.SCHEMA, 1, ..., ...)
    )
    made = restriction(tables={"app.users"}).apply(changes)
    assert [row[0] for row in seen(made)] == [HIDDEN, HIDDEN, Op.INSERT, Op.SCHEMA]
    assert seen(made)[:2] == [NOTHING, NOTHING]


def test_offsets_stay_and_a_chunk_of_which_all_is_seen_is_the_same():
    changes = chunk(*[(Op.INSERT, 1, ..., "other")] * 40)
    made = restriction(MINE).apply(changes)
    assert (made.first, made.last, len(made)) == (changes.first, changes.last, 40)
    assert made.batch.column("offset") == changes.batch.column("offset")
    all_mine = chunk(*[(Op.INSERT, 1, ..., "mine")] * 40)
    assert restriction(MINE).apply(all_mine) is all_mine


def test_the_hidden_leave_no_bytes_behind():
    made = restriction(MINE).apply(chunk((Op.INSERT, 1, ..., "secret"), (Op.UPDATE, 1, "secret", "mine")))
    for column in made.batch.columns:
        for buffer in column.buffers():
            assert buffer is None or b"secret" not in buffer.to_pybytes()


@pytest.mark.parametrize("count", [2, 40])
def test_a_filter_for_all_ops_does_not_let_the_hidden_through(count):
    rights = restriction(MINE)
    names = ["mine" if number % 2 else "other" for number in range(count)]
    shown = rights.apply(chunk(*((Op.INSERT, 1, ..., name) for name in names)))
    wanted = Filter(TableTarget((USERS.table,)), FilterOptions(tuple(Op))).restricted(rights)
    assert list(wanted.select(shown)) == [row for row, name in enumerate(names) if name == "mine"]


def test_whoever_sees_all_is_not_restricted():
    assert Restrictions().get(ANONYMOUS, "app") is None
    assert Restrictions().get(Principal("p", namespaces=frozenset({"app"})), "app") is None
    assert Restrictions().get(Principal("p", rows={"shop.users": "1"}), "app") is None
    assert Restrictions().get(Principal("p", tables=frozenset({"shop.users"})), "app") is not None


def test_equal_rights_are_one_restriction_while_somebody_has_it():
    restrictions = Restrictions()
    one, other = Principal("a", rows=MINE), Principal("b", rows=dict(MINE))
    first = restrictions.get(one, "app")
    assert restrictions.get(other, "app") is first
    assert restrictions.get(Principal("c", rows={"app.users": "1"}), "app") != first


def test_what_was_restricted_is_kept_for_the_next_who_may_see_the_same():
    mine, changes = restriction(MINE), chunk((Op.INSERT, 1, ..., "other"))
    again = chunk((Op.INSERT, 1, ..., "other"))
    assert mine.apply(changes) is mine.apply(again)


@pytest.mark.parametrize(
    "predicate",
    ["absent = 1", "before.name = 'x'", "after.name = 'x'", "op = 'insert'", "name = ", ""],
)
def test_a_predicate_that_does_not_fit_its_table_shows_nothing_and_says_so(predicate):
    with pytest.raises(PermissionDeniedError, match=r"app\.users.*cannot be evaluated"):
        restriction({"app.users": predicate}).apply(chunk((Op.INSERT, 1, ..., "x")))
    other = chunk((Op.INSERT, 2, ..., "x"))
    assert restriction({"app.users": predicate}).apply(other) is other


def test_a_predicate_that_fails_on_a_row_shows_nothing_and_says_so():
    damaged = Draft("p", 1)
    damaged.add(Op.INSERT, 1, b"[1]", after=b"no image")
    with pytest.raises(PermissionDeniedError, match="cannot be evaluated"):
        restriction(MINE).apply(chunk_of([USERS], damaged))


def test_the_rows_of_a_snapshot_pass_the_same_predicate():
    images = [image(1, "mine"), image(2, "other"), None]
    assert restriction(MINE).visible(images, USERS) == [True, False, False]
    assert restriction(MINE).visible(images, OTHERS) == [True, True, False]
    assert restriction(tables=set()).visible(images, USERS) == [False, False, False]


def test_a_predicate_follows_its_table_through_versions_of_the_schema():
    wider = schema_of("users", version=2, columns=(*USERS.columns, Column("team", Kind.STR)))
    draft = Draft("p", 1)
    draft.add(Op.INSERT, 1, b"[1]", after=b'{"id":1,"name":"mine"}')
    draft.add(Op.INSERT, 2, b"[2]", after=b'{"id":2,"name":"mine","team":"a"}')
    draft.add(Op.INSERT, 2, b"[3]", after=b'{"id":3,"name":"other","team":"a"}')
    made = restriction(MINE).apply(chunk_of([USERS, wider], draft))
    assert [row[0] for row in seen(made)] == [Op.INSERT, Op.INSERT, HIDDEN]


@pytest.mark.parametrize("dialects", [{"app": dialect_of("sqlite")}, {}], ids=["a known source", "another source"])
def test_predicates_are_read_before_they_are_kept(dialects):
    check_rows({"app.users": "name = 'x' AND id > 7"}, dialects)
    with pytest.raises(InvalidPredicateError):
        check_rows({"app.users": "name = "}, dialects)


def test_a_predicate_for_a_source_without_sql_is_refused():
    with pytest.raises(InvalidPredicateError):
        check_rows({"app.users": "id = 1"}, {"app": dialect_of("none")})


def test_a_table_whose_dialect_cannot_evaluate_its_predicate_is_closed():
    foreign = structs.replace(USERS, dialect="none")
    draft = Draft("p", 1)
    draft.add(Op.INSERT, 1, b"[1]", after=b'{"id":1,"name":"mine"}')
    with pytest.raises(PermissionDeniedError):
        restriction(MINE).apply(chunk_of([foreign], draft))


# ---- the property: what can be reconstructed is exactly what may be seen

COLUMNS = (Column("id", Kind.I64), Column("n", Kind.I64, "INTEGER"), Column("s", Kind.STR, "TEXT"))
ITEMS = schema_of("items", columns=COLUMNS)
numbers = st.one_of(st.none(), st.integers(-2, 3))
texts = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab"]))

conditions = st.one_of(
    st.builds("n {} {}".format, st.sampled_from(["=", "<>", "<", ">=", "IS", "IS NOT"]), st.integers(-2, 3)),
    st.builds(
        "s {} '{}'".format, st.sampled_from(["=", "<>", "<", "LIKE", "GLOB"]), st.sampled_from(["", "a", "a%", "b*"])
    ),
    st.builds("id % {} = 0".format, st.integers(1, 3)),
    st.sampled_from(["n IS NULL", "s IS NOT NULL", "n IN (1, NULL)", "n BETWEEN 0 AND 2", "NULL", "1", "0", "n"]),
)
predicates = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)
steps = st.lists(st.tuples(st.integers(1, 4), st.one_of(st.none(), st.tuples(numbers, texts))), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(predicates, steps)
def test_what_a_principal_can_reconstruct_is_exactly_what_it_may_see(predicate, steps):
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, n INTEGER, s TEXT)")
    draft, may_see, state = Draft("p", 1), [], {}
    for key, row in steps:
        before, after = state.get(key), row
        if before is None and after is None:
            continue
        op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
        images = [
            None if cells is None else msgspec.json.encode(dict(zip(("id", "n", "s"), (key, *cells), strict=True)))
            for cells in (before, after)
        ]
        draft.add(op, 1, b"[%d]" % key, before=images[0], after=images[1])
        state[key] = after
        database.execute("DELETE FROM items WHERE id = ?", [key])
        if after is not None:
            database.execute("INSERT INTO items VALUES (?, ?, ?)", (key, *after))
        may_see.append({found[0]: found[1:] for found in database.execute(f"SELECT * FROM items WHERE {predicate}")})
    database.close()
    if len(draft):
        made = restriction({"app.items": predicate}).apply(chunk_of([ITEMS], draft))
        assert reconstructed(made) == may_see


def reconstructed(made):
    """Return the rows that a subscriber has after each change, every one of which must make sense to it."""
    rows, history = {}, []
    columns = [made.batch.column(name).to_pylist() for name in ("op", "key", "before", "after")]
    for op, key, *images in zip(*columns, strict=True):
        before, after = (tuple(msgspec.json.decode(image).values()) if image else None for image in images)
        if op == HIDDEN:
            assert (key, before, after) == (b"[]", None, None)
        else:
            (number,) = msgspec.json.decode(key)
            assert (before and before[1:]) == rows.get(number), "a before image is the row that the subscriber has"
            assert (op == Op.INSERT) == (before is None)
            assert (op == Op.DELETE) == (after is None)
            rows.pop(number, None)
            if after is not None:
                rows[number] = after[1:]
        history.append(dict(rows))
    return history


class Images(StrEnum):
    """What a source sends of the row before a change, and of the row after an update."""

    FULL = "both rows whole"
    KEY = "the key before, the whole row after"
    NONE = "no row before, the whole row after"
    CHANGED = "the key before, what changed after"
    NEITHER = "no row before, what changed after"
    LARGE = "both rows, without the large column where it has not changed"


def sent(images, before, after):
    """Return both images of a row as a source sends them; rows are mappings, or None."""
    unchanged = {name for name in before or () if after and before[name] == after[name]} - {"id"}
    old = before and {
        Images.KEY: {"id": before["id"]},
        Images.CHANGED: {"id": before["id"]},
        Images.NONE: None,
        Images.NEITHER: None,
        Images.LARGE: {name: cell for name, cell in before.items() if name != "s"},
    }.get(images, before)
    left_out = {Images.CHANGED: unchanged, Images.NEITHER: unchanged, Images.LARGE: unchanged & {"s"}}.get(images, ())
    new = after and {name: cell for name, cell in after.items() if name not in left_out}
    return [row and msgspec.json.encode(row) for row in (old, new)]


@settings(max_examples=300, deadline=None)
@given(predicates, steps, st.sampled_from(Images))
def test_whatever_a_source_sends_nobody_keeps_a_row_that_it_may_not_see(predicate, steps, images):
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, n INTEGER, s TEXT)")
    draft, history, state = Draft("p", 1), [], {}
    for key, row in steps:
        before = state.get(key)
        after = row and dict(zip(("id", "n", "s"), (key, *row), strict=True))
        if before is None and after is None:
            continue
        op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
        old, new = sent(images, before, after)
        draft.add(op, 1, b"[%d]" % key, before=old, after=new)
        state[key] = after
        database.execute("DELETE FROM items WHERE id = ?", [key])
        if after is not None:
            database.execute("INSERT INTO items VALUES (?, ?, ?)", tuple(after.values()))
        history.append({found[0]: found[1:] for found in database.execute(f"SELECT * FROM items WHERE {predicate}")})
    database.close()
    if not len(draft):
        return
    made = restriction({"app.items": predicate}).apply(chunk_of([ITEMS], draft))
    whole_after = images in {Images.FULL, Images.KEY, Images.NONE}
    columns = [made.batch.column(name).to_pylist() for name in ("op", "key", "after")]
    view = {}
    for may_see, op, key, after in zip(history, *columns, strict=True):
        if op == Op.DELETE:
            view.pop(*msgspec.json.decode(key), None)
        elif op != HIDDEN:
            (number,) = msgspec.json.decode(key)
            view[number] = (view.get(number, {}) if op == Op.UPDATE else {}) | msgspec.json.decode(after)
        assert view.keys() <= may_see.keys(), "a row is kept that may not be seen"
        if whole_after:
            assert view.keys() == may_see.keys(), "a row is missed that may be seen"
        for number, cells in view.items():
            current = dict(zip(("n", "s"), may_see[number], strict=True))
            assert {name: cell for name, cell in cells.items() if name != "id"}.items() <= current.items()
            if whole_after:
                assert cells.keys() == {"id", "n", "s"}


def test_tables_of_another_schema_are_named_with_it():
    made = restriction({"app.sales.users": "name = 'mine'"})
    assert made.narrows(TableName("app", "users", "sales"))
    assert not made.narrows(TableName("app", "users"))


class Exact(WithoutSql):
    """A dialect whose database has `Users` and `users` as two tables."""

    def fold(self, name):
        return name


@pytest.mark.parametrize(
    ("dialects", "named", "narrowed"),
    [
        ({"app": dialect_of("sqlite")}, "USERS", {"users", "Users", "USERS"}),
        ({"app": dialect_of("sqlite")}, "ÄPFEL", {"ÄPFEL", "Äpfel"}),
        ({"app": Exact("exact")}, "Users", {"Users"}),
        ({"app": dialect_of("none")}, "ÄPFEL", {"ÄPFEL", "Äpfel", "äpfel"}),
        ({}, "Users", {"users", "Users", "USERS"}),
    ],
    ids=["SQLite", "SQLite beyond ASCII", "a dialect that does not fold", "unknown SQL", "an unknown source"],
)
def test_a_predicate_is_found_by_the_name_as_the_database_compares_it(dialects, named, narrowed):
    made = Restrictions(dialects).get(Principal("p", rows={f"app.{named}": "id = 1"}), "app")
    names = ("users", "Users", "USERS", "ÄPFEL", "Äpfel", "äpfel")
    assert {name for name in names if made.narrows(TableName("app", name))} == narrowed


def test_predicates_of_two_names_of_one_table_must_both_hold():
    rows = {"app.users": "id > 1", "app.USERS": "name = 'mine'"}
    principal = Principal("p", rows=rows)
    folded = Restrictions({"app": dialect_of("sqlite")}).get(principal, "app")
    images = [image(1, "mine"), image(2, "mine"), image(2, "other")]
    assert folded.visible(images, USERS) == [False, True, False]
    exact = Restrictions({"app": Exact("exact")}).get(principal, "app")
    assert exact.visible(images, USERS) == [False, True, True]


def test_what_all_restrictions_keep_together_is_bounded_by_what_is_held():
    kept = RestrictedChunks(200_000)
    for number in range(20):
        one = Restriction(("app", None, (("app.users", f"name = 'n{number}'"),)), str, kept)
        given = chunk(*[(Op.INSERT, 1, ..., "x" * 100)] * 100)
        assert one.apply(given) is one.apply(given)
        assert held_memory(kept) <= kept.size_bytes + held_memory(given.schemas)
        assert kept.size_bytes <= 200_000
