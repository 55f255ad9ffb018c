"""Changes by table, op and key, and what readers may want of them."""

from hypothesis import strategies as st

from tailrace.log.batch import encode_drafts
from tailrace.model.chunk import Chunk
from tailrace.model.commit import Draft
from tailrace.model.image import NO_KEY
from tailrace.model.number import Index, Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.wanted import AnyKey, KeyWithin, OneOfKeys, Wanted

__all__ = ["block_of", "changes", "passes", "wanteds"]

integers = st.integers(-50, 50).map(lambda number: b"[%d]" % number)
keys = integers | st.sampled_from([NO_KEY, b'["a"]', b"[1,2]"])
changes = st.tuples(st.sampled_from(Op), st.integers(1, 4), keys)
wanted_keys = (
    st.just(AnyKey())
    | st.frozensets(keys, max_size=2).map(OneOfKeys)
    | st.tuples(st.integers(-60, 60), st.integers(0, 20)).map(lambda two: KeyWithin(two[0], two[0] + two[1]))
)
wanteds = st.builds(
    Wanted,
    st.dictionaries(st.integers(1, 4), wanted_keys, max_size=3),
    st.frozensets(st.sampled_from(list(map(int, Op)))),
    st.integers(3, 4),
)


def block_of(block: list[tuple[Op, int, bytes]], first: int) -> Chunk:
    made = Draft(Position("p"), 1000 + first)
    for op, schema, key in block:
        made.add(op, SchemaId(schema), key, after=b"{}")
    return Chunk(encode_drafts([made], Offset(first), Index(first)), {})


def passes(wanted: Wanted, change: tuple[Op, int, bytes]) -> bool:
    """Tell whether a change is wanted, looked at by itself. A key that is no integer may lie between any two."""
    op, schema, key = change
    if schema > wanted.known:
        return True
    if schema not in wanted.schemas or op not in wanted.ops:
        return False
    match wanted.schemas[schema]:
        case AnyKey():
            return True
        case OneOfKeys(chosen):
            return key in chosen
        case KeyWithin(lower, upper):
            return not key[1:-1].lstrip(b"-").isdigit() or lower <= int(key[1:-1]) <= upper
