"""SQL and CEL predicates, against the same filter written by hand over the same images."""

import random
import sys
import time
from collections.abc import Callable

import msgspec

from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sql.sqlite.predicate import compile_where
from tailrace.subscription.cel.compile import compile_cel

ROUNDS = 9
CHANGES = 8192
RATIO_MIN = 0.30

SCHEMA = TableSchema(
    TableName("app", "orders"),
    1,
    (
        Column("id", Kind.I64, "INTEGER"),
        Column("customer", Kind.STR, "TEXT"),
        Column("status", Kind.STR, "TEXT"),
        Column("amount", Kind.F64, "REAL"),
        Column("quantity", Kind.I64, "INTEGER"),
        Column("note", Kind.STR, "TEXT"),
    ),
    ("id",),
)

Images = list[bytes | None]
Hand = Callable[[list[int], Images, Images], list[bool]]


class Order(msgspec.Struct, gc=False):
    """The columns that the hand-written filters need: the quickest way to read them."""

    customer: str | None = None
    status: str | None = None
    amount: int | float | None = None
    quantity: int | float | None = None


decode = msgspec.json.Decoder(Order).decode


def by_hand(passes: Callable[[Order], bool]) -> Hand:
    """Return a filter that passes a change when either image does."""

    def select(ops: list[int], befores: Images, afters: Images) -> list[bool]:
        return [
            (after is not None and passes(decode(after))) or (before is not None and passes(decode(before)))
            for before, after in zip(befores, afters, strict=True)
        ]

    return select


def grown(ops: list[int], befores: Images, afters: Images) -> list[bool]:
    """Pass updates that raise the amount."""
    passed = []
    for op, before, after in zip(ops, befores, afters, strict=True):
        old = None if before is None else decode(before).amount
        new = None if after is None else decode(after).amount
        passed.append(op == Op.UPDATE and old is not None and new is not None and old < new)
    return passed


def is_open(row: Order) -> bool:
    return row.status == "open"


def is_large(row: Order) -> bool:
    return row.amount is not None and row.amount > 900 and row.status == "open"


def is_odd(row: Order) -> bool:
    if row.quantity is None or row.amount is None:
        return False
    return row.quantity * row.amount > 5000 or row.status in {"late", "lost"}


def is_named(row: Order) -> bool:
    return row.customer is not None and row.customer.lower().startswith("an") and row.status is not None


CASES: list[tuple[str, str, str, Hand]] = [
    ("one equality", "status = 'open'", "row.status == 'open'", by_hand(is_open)),
    (
        "range and equality",
        "amount > 900 AND status = 'open'",
        "row.amount > 900.0 && row.status == 'open'",
        by_hand(is_large),
    ),
    (
        "arithmetic and list",
        "quantity * amount > 5000 OR status IN ('late', 'lost')",
        "double(row.quantity) * row.amount > 5000.0 || row.status in ['late', 'lost']",
        by_hand(is_odd),
    ),
    (
        "pattern",
        "customer LIKE 'an%' AND status IS NOT NULL",
        "row.customer.matches('^[aA][nN]') && row.status != null",
        by_hand(is_named),
    ),
    (
        "before and after",
        "op = 'update' AND before.amount < after.amount",
        "op == 'update' && before.amount < after.amount",
        grown,
    ),
]


def changes() -> tuple[list[int], Images, Images]:
    source = random.Random(7)

    def image(number: int) -> bytes:
        return msgspec.json.encode(
            {
                "id": number,
                "customer": source.choice(["anna", "Bernd", "Ängström", "ANDREW", "zoe"]) + str(number),
                "status": source.choice(["open", "paid", "late", "lost", "sent"]),
                "amount": round(source.uniform(0, 1000), 2),
                "quantity": source.randrange(100),
                "note": "n" * 60,
            }
        )

    ops: list[int] = []
    befores: Images = []
    afters: Images = []
    for number in range(CHANGES):
        op = source.choice([Op.INSERT, Op.UPDATE, Op.UPDATE, Op.DELETE])
        ops.append(op)
        befores.append(None if op is Op.INSERT else image(number))
        afters.append(None if op is Op.DELETE else image(number))
    return ops, befores, afters


def seconds(select: Hand, batch: tuple[list[int], Images, Images]) -> float:
    begin = time.perf_counter()
    select(*batch)
    return time.perf_counter() - begin


def main() -> int:
    batch = changes()
    worst = float("inf")
    for name, where, cel, hand in CASES:
        sql = compile_where(where, SCHEMA)
        if sql.select(*batch) != hand(*batch):
            print(f"predicate {name}: the answers differ MISS", flush=True)
            return 1
        times: dict[str, list[float]] = {"hand": [], "sql": []}
        for _ in range(ROUNDS):
            times["hand"].append(seconds(hand, batch))
            times["sql"].append(seconds(sql.select, batch))
        by_cel = seconds(compile_cel(cel, SCHEMA).select, batch)
        ours, peer = min(times["sql"]), min(times["hand"])
        ratio = peer / ours
        worst = min(worst, ratio)
        verdict = "PASS" if ratio >= RATIO_MIN else "MISS"
        print(
            f"predicate {name}: {ratio:.2f} of hand-written (bar {RATIO_MIN:.2f}) {verdict}"
            f"  hand {peer / CHANGES * 1e9:.0f} ns, where {ours / CHANGES * 1e9:.0f} ns,"
            f" cel {by_cel / CHANGES * 1e9:.0f} ns a change",
            flush=True,
        )
    return 0 if worst >= RATIO_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
