"""The outbox of a sink: changes become messages, and what the target refuses becomes dead letters.

Order. Messages of one key arrive in the order of their changes, whatever is refused: a change whose key is parked is
parked behind it, or waited with. So that no later message of a key has arrived when an earlier one turns out to be
refused, a target that takes each message by itself is given each key once at a time; one that holds back the rest of a
key, or takes nothing at all then, is given whole batches (`Intake`).

Nothing is lost. Letters are on disk before anything is sent that stands behind them and before a mark that covers them
is kept; whoever calls moves on when `deliver` has returned.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import Struct, structs

from tailrace.clock import Clock
from tailrace.message.base import BusyError, Intake, Message, Refusal, Target, envelope_for
from tailrace.message.shape import Shape, Shaped, ShapeOptions, message_id
from tailrace.meta.dead_letter import Letter, LetterDraft, LetterState, OnRefused
from tailrace.meta.dead_letter_store import DeadLetterStore, key_hash
from tailrace.model.chunk import Change
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.op import Op
from tailrace.model.table import TableName, TableSchema

__all__ = ["Interrupted", "Outbox", "OutboxMark", "OutboxOptions"]


class OutboxMark(Struct, frozen=True):
    """What a target keeps beside the messages, in the same atomic step.

    The mark of the last whole batch, the letters that were sent since, and how much it has of the batch that follows:
    this many of its changes, the last of which has the offset `settled`.
    """

    mark: bytes | None
    letters: tuple[int, ...] = ()
    batch: bytes = b""
    done: int = 0
    settled: int = 0
    owner: str = ""
    """Whose it is. A sink that was removed leaves its mark behind, which means nothing to the next of its name."""


class Interrupted(Struct):
    """How far the batch with this mark is: this many of its changes are settled, and these messages parked besides."""

    mark: bytes
    done: int = 0
    settled: int = 0
    parked: set[str] = msgspec.field(default_factory=set)


def first_of_each(due: Sequence[Letter], sink: str, stuck: set[str]) -> tuple[list[Letter], list[Letter]]:
    """Return the first letter of each key, and the others; none of keys that are stuck."""
    run, later = [], []
    seen: set[str] = set()
    for letter in due:
        key = key_hash(sink, letter.change)
        if key in seen:
            later.append(letter)
        elif key not in stuck:
            run.append(letter)
            seen.add(key)
    return run, later


logger = logging.getLogger(__name__)

_LETTERS_AT_ONCE = 500
_KEYS_AGE_S_MAX = 0.1
"""How long the parked keys are taken to be as they were read: someone may drop or retry letters at any time."""

_BEHIND = "an earlier change of its key is parked"


class OutboxOptions(Struct, frozen=True):
    """How an outbox sends, and what it does with what is refused."""

    on_refused: OnRefused = OnRefused.PARK
    letters_max: int = 10_000
    """Most dead letters; with more the sink stops."""

    messages_max: int = 10_000
    bytes_max: int = 32 << 20
    """Most messages, and about the most bytes, that a target is given at once."""


class Outbox:
    """Sends the changes of one sink to its target. For one thread.

    A `deliver` that raised `SinkUnavailableError` is repeated with the same changes and mark, and goes on where it was.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        shape: ShapeOptions,
        dead_letters: DeadLetterStore,
        clock: Clock,
        options: OutboxOptions | None = None,
    ) -> None:
        self.messages = 0
        """Messages that have arrived."""

        self.parked = 0
        """Changes that were parked."""

        self.progress = 0
        """Rises whenever something has arrived, also of a batch that fails then."""

        self.changes_max: int | None = target.traits.changes_max
        """How many changes the target wants to be given at once; None where it does not mind."""

        self.name = name
        self._target = target
        self._intake = target.traits.intake
        chosen = structs.replace(shape, envelope=envelope_for(target, shape.envelope))
        self._shape = Shape(chosen, tombstones=target.traits.tombstones)
        self._dead_letters = dead_letters
        self._clock = clock
        self._options = options or OutboxOptions()
        self._owner = ""
        self._mark: bytes | None = None
        self._dropped: set[str] = set()
        """Ids of messages that someone has dropped, of changes that the sink may be given again after a crash."""

        self._keys: dict[str, int] = {}
        self._keys_read_s = 0.0
        self._drafts: list[LetterDraft] = []
        self._batch = Interrupted(b"")
        self._in_doubt = False

    def open(self, schemas: Sequence[TableSchema], owner: Callable[[], str] = str) -> None:
        """Connect, and find out what the target has and what is parked.

        `owner` is asked, when the target can be reached, whose marks count; those of others are left out of account.

        Raises:
            ConfigError: Filter or projection do not fit the tables.
            SinkUnavailableError: The target cannot be reached now.
            SinkRefusedError: The target will not take this.
            MetadataError: The dead letters cannot be read.
        """
        self.awaited(schemas)
        self._target.open(schemas)
        self._owner = owner()
        self._recall()

    def awaited(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        """Return the tables that the sink names and that are not among these, which are all that there are.

        Raises:
            ConfigError: Filter or projection do not fit the tables.
        """
        self._shape.check(schemas)
        return self._shape.missing(schemas)

    @property
    def mark(self) -> bytes | None:
        """Return the mark of the last batch that the target has; None where it has none, or keeps none."""
        return self._mark

    @property
    def settled(self) -> int:
        """Return up to which offset the changes of a batch that broke off are settled; 0 where none did, or no matter.

        Of use to whoever has one source, no snapshots, and may cut the rest of the batch otherwise.
        """
        return self._batch.settled

    def deliver(self, changes: Sequence[Change], mark: bytes, *, snapshot: bool = False) -> None:
        """Send changes. When it returns, each is with the target, among the dead letters, or was not wanted.

        No two batches have the same mark. A batch that the target has by its mark is left out.

        Raises:
            SinkUnavailableError: The target cannot be reached now, or a change waits for a letter of its key.
            SinkRefusedError: The target takes nothing any more, the dead letters are full, or a change was refused and
                the sink is to stop then.
            MetadataError: The dead letters cannot be written.
        """
        # The last call ended without an answer: the target may have taken its messages or not. Its mark decides;
        # guessing would send twice or lose.
        if self._in_doubt:
            self._recall()
        elif self._keys and self._clock.monotonic_s() - self._keys_read_s > _KEYS_AGE_S_MAX:
            self._read_keys()
        # The batch arrived as a whole, but the caller crashed before it noted that.
        if self._mark == mark:
            return
        shaped = self._shape.shaped(changes, snapshot=snapshot)
        # Another batch than the one that broke off: the caller has cut the rest otherwise. What is settled by offset
        # stays settled. Rows of a snapshot have the offset of their page, which says nothing about any of them, nor
        # about changes of other tables: of a snapshot only the count is kept.
        if self._batch.mark != mark:
            settled = 0 if snapshot else self._batch.settled
            done = sum(one.change.offset <= settled for one in shaped) if settled else 0
            self._batch = Interrupted(mark, done=done, settled=settled)
        self._drafts = []
        # A batch that is smaller than the one that broke off leaves some of what is settled to the next.
        left = 0 if self._batch.done < len(shaped) else self._batch.settled
        self._deliver(shaped, left)
        self._mark = mark
        self._batch = Interrupted(b"", settled=left)

    def tend(self, through: int | None = None) -> int:
        """Resend dead letters marked for retry; return how many have arrived.

        A letter must not overtake changes of its key. `through` is the offset up to which whoever calls has delivered
        all changes: letters behind it stay, but for those that a sink waits for within a batch. Without it, to be
        called after a `deliver`, or where there is nothing to deliver; while a batch is under way it does nothing then.

        Raises:
            SinkUnavailableError: The target cannot be reached now.
            SinkRefusedError: The target takes nothing any more.
            MetadataError: The dead letters cannot be read or written.
        """
        if self._in_doubt:
            self._recall()
        batch, waits = self._batch, self._options.on_refused is OnRefused.WAIT
        # While a batch is under way, some changes of a parked key may be sent and others not, so a retried dead letter
        # has no place in the order. A sink that waits has stopped exactly at such a key, and could never continue
        # without the retry.
        if not self._keys or (through is None and batch.mark and not waits):
            return 0
        if through is not None and waits:
            through = max(through, batch.settled)
        due = list(self._dead_letters.due(self.name, _LETTERS_AT_ONCE, through))
        stuck: set[str] = set()
        arrived = 0
        while due:
            run, due = first_of_each(due, self.name, stuck)
            arrived += self._retry_parked(run, stuck)
        self._read_keys()
        return arrived

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        self._target.close()

    def _deliver(self, shaped: Sequence[Shaped], left: int) -> None:
        """Send changes in runs: with each key once where the target takes each message by itself, or the sink waits."""
        options, batch = self._options, self._batch
        # A target that takes messages one by one has delivered the second message of a key when the first turns out to
        # be refused. With each key once in a run, there is no second.
        each = self._intake is Intake.EACH or options.on_refused is OnRefused.WAIT
        run: list[Shaped] = []
        seen: set[tuple[TableName, bytes]] = set()
        size = 0
        for place in range(batch.done, len(shaped)):
            one = shaped[place]
            row = (one.change.schema.table, one.change.key)
            full = len(run) >= options.messages_max or size >= options.bytes_max
            # A truncation concerns every key of its table: nothing may pass it, in either direction.
            alone = one.change.op is Op.TRUNCATE or (run and run[-1].change.op is Op.TRUNCATE)
            if full or alone or (each and row in seen):
                self._settle_through(place, run, shaped)
                run, seen, size = [], set(), 0
            try:
                admitted = self._admits(one)
            # What is before this change is sent first: it does not depend on it, and the repeated call begins after it.
            except (SinkUnavailableError, SinkRefusedError):
                self._settle_through(place, run, shaped)
                raise
            if admitted:
                run.append(one)
                seen.add(row)
                size += sum(len(message.value or b"") for message in one.messages)
        self._settle(run, OutboxMark(batch.mark, settled=left))

    def _settle_through(self, place: int, run: Sequence[Shaped], shaped: Sequence[Shaped]) -> None:
        """Send what is before a place in the batch, and keep what is parked there."""
        batch = self._batch
        # The offset is kept beside the count because the caller may cut the batch otherwise next time; then only the
        # offset still means something.
        last = shaped[place - 1] if place > batch.done else None
        settled = batch.settled if last is None or last.snapshot else last.change.offset
        if run:
            self._settle(run, OutboxMark(self._mark, batch=batch.mark, done=place, settled=settled))
        else:
            self._write()
        batch.done, batch.settled = place, settled

    def _admits(self, one: Shaped) -> bool:
        """Tell whether a change is to be sent; one that is not is parked, if it is not parked yet, or was dropped.

        Raises:
            SinkUnavailableError: It waits for a letter of its key.
            SinkRefusedError: It is no message, and the sink is to stop then.
        """
        # A batch that is repeated after a crash meets changes that were parked the first time, or that were dropped
        # since. They must neither be sent nor parked again.
        if self._batch.parked or self._dropped:
            id_ = message_id(one.change, snapshot=one.snapshot)
            if id_ in self._batch.parked or id_ in self._dropped:
                return False
        if not self._is_behind(one):
            if one.reason:
                self._refuse(one, Refusal(0, one.reason))
            return not one.reason
        if self._options.on_refused is OnRefused.WAIT and self._keys[self._key(one)] < one.change.offset:
            self._write()
            raise SinkUnavailableError(
                f"sink {self.name!r} waits: a change of table {one.change.schema.table.wire} follows a dead letter "
                "of the same key; retry or drop that one"
            )
        self._park(one, LetterState.BEHIND, _BEHIND)
        return False

    def _settle(self, run: Sequence[Shaped], mark: OutboxMark) -> None:
        """Send changes, and park what is refused with what stands behind it."""
        while True:
            owners = [one for one in run for _ in one.messages]
            # Dead letters are durable before anything is sent after them. The other way round, a crash in between would
            # lose a change whose successors have arrived.
            self._write()
            # A target that keeps marks gets an empty batch as well: its mark must move, or the batch would be read
            # again after each restart.
            if not owners and self._intake is not Intake.WHOLE:
                return
            refusals = self._send([message for one in run for message in one.messages], mark)
            if not refusals:
                self.messages += len(owners)
                return
            reasons = {id(owners[one.place]): one for one in refusals}
            if self._intake is not Intake.WHOLE:
                self.messages += len(owners) - len(refusals)
                self._park_refused(run, reasons)
                self._write()
                return
            # A target of whole batches has taken nothing of it. The rest is sent again without what is refused, and
            # without what follows that in its key.
            run = list(self._left(run, reasons))

    def _left(self, run: Sequence[Shaped], reasons: dict[int, Refusal]) -> Iterator[Shaped]:
        """Yield what is to be sent again of changes of which nothing has arrived, and park the rest."""
        for one in run:
            if id(one) in reasons and not self._is_behind(one):
                self._refuse(one, reasons[id(one)])
            elif self._admits(one):
                yield one

    def _park_refused(self, run: Sequence[Shaped], reasons: dict[int, Refusal]) -> None:
        """Park the changes that were refused; all others have arrived."""
        for one in run:
            if id(one) in reasons and self._is_behind(one):
                self._park(one, LetterState.BEHIND, _BEHIND)
            elif id(one) in reasons:
                self._refuse(one, reasons[id(one)])

    def _is_behind(self, one: Shaped) -> bool:
        """Tell whether a change is parked, or one of its key before it."""
        first = self._keys.get(self._key(one)) if self._keys else None
        return first is not None and first <= one.change.offset

    def _key(self, one: Shaped) -> str:
        return key_hash(self.name, one.change)

    def _refuse(self, one: Shaped, refusal: Refusal) -> None:
        if self._options.on_refused is OnRefused.STOP:
            change = one.change
            raise SinkRefusedError(
                refusal.reason, table=change.schema.table.wire, key=change.key.decode(errors="replace")
            )
        self._park(one, LetterState.REFUSED, refusal.reason, refusal.answer)

    def _park(self, one: Shaped, state: LetterState, reason: str, answer: str = "") -> None:
        """Have a change be parked by the next `_write`, and its key from now on."""
        id_ = message_id(one.change, snapshot=one.snapshot)
        draft = LetterDraft(id_, one.change, one.snapshot, state, reason, answer)
        self._drafts.append(draft)
        key, offset = self._key(one), one.change.offset
        self._keys[key] = min(self._keys.get(key, offset), offset)

    def _write(self) -> None:
        """Keep the letters that were parked."""
        drafts, self._drafts = self._drafts, []
        if not drafts:
            return
        try:
            new = self._dead_letters.park(self.name, drafts, self._options.letters_max)
        # Keys were parked in memory when their drafts were made; nothing of that is on disk. Read the truth back.
        except BaseException:
            self._read_keys()
            raise
        self._batch.parked.update(draft.message_id for draft in drafts)
        self.parked += new
        if new:
            first = drafts[0]
            fields = {"sink": self.name, "letters": new, "table": first.change.schema.table.wire}
            logger.warning("changes parked", extra={**fields, "offset": first.change.offset, "reason": first.reason})

    def _retry_parked(self, parked: Sequence[Letter], stuck: set[str]) -> int:
        """Send letters of different keys; return how many have arrived. Keys that are refused again are `stuck`."""
        left = [(letter, self._reshaped(letter)) for letter in parked]
        while left:
            gone = [letter.id for letter, shaped in left if shaped is None or not shaped.reason]
            sending = [(letter, message) for letter, shaped in left if shaped for message in shaped.messages]
            batch = self._batch
            # The ids of the retried dead letters travel with the mark: if the answer is lost, `_recall` learns from it
            # which of them have arrived, and forgets exactly those.
            mark = OutboxMark(self._mark, tuple(gone), batch.mark, batch.done, batch.settled)
            refusals = self._send([message for _, message in sending], mark) if sending else []
            reasons = {letter.id: Refusal(0, shaped.reason) for letter, shaped in left if shaped and shaped.reason}
            reasons |= {sending[one.place][0].id: one for one in refusals}
            for letter, _ in left:
                if letter.id in reasons:
                    refusal = reasons[letter.id]
                    self._dead_letters.refused(letter, refusal.reason, refusal.answer)
                    stuck.add(key_hash(self.name, letter.change))
            left = [(letter, shaped) for letter, shaped in left if letter.id not in reasons]
            if not refusals or self._intake is not Intake.WHOLE:
                break
        self._in_doubt = self._intake is Intake.WHOLE  # until they are forgotten, they are known by the mark alone
        self._dead_letters.sent([letter.id for letter, _ in left])
        self._in_doubt = False
        self.messages += len(left)
        return len(left)

    def _reshaped(self, letter: Letter) -> Shaped | None:
        """Return what the sink makes of a letter now; None where it no longer wants it."""
        shaped = self._shape.shaped([letter.change], snapshot=letter.snapshot, parked=True)
        return shaped[0] if shaped else None

    def _send(self, messages: Sequence[Message], mark: OutboxMark) -> Sequence[Refusal]:
        self._in_doubt = self._intake is Intake.WHOLE  # until it has answered
        try:
            refusals = self._target.send(messages, msgspec.json.encode(structs.replace(mark, owner=self._owner)))
        except BusyError as error:
            self.progress += error.arrived
            raise
        self._in_doubt = False
        self.progress += len(messages)
        return refusals

    def _recall(self) -> None:
        """Find out what the target has and what is parked."""
        found, mine = self._stored_mark(), self._batch
        if found is None and self._intake is Intake.WHOLE:
            self._batch = Interrupted(mine.mark, parked=mine.parked)  # it has nothing of it, or has lost it
        if found is not None:
            self._dead_letters.sent(found.letters)
            self._mark = found.mark
            if found.batch:
                # What was parked in this process is known only here: the mark does not hold it. It is valid for the
                # same batch alone.
                parked = mine.parked if mine.mark == found.batch else set()
                self._batch = Interrupted(found.batch, found.done, found.settled, parked)
            else:
                mark, parked = (b"", set()) if mine.mark == found.mark else (mine.mark, mine.parked)
                self._batch = Interrupted(mark, settled=found.settled, parked=parked)
        self._in_doubt = False
        self._dropped = self._dead_letters.dropped(self.name)
        self._read_keys()

    def _stored_mark(self) -> OutboxMark | None:
        stored = self._target.mark()
        try:
            found = None if stored is None else msgspec.json.decode(stored, type=OutboxMark)
        except msgspec.MsgspecError:
            raise SinkRefusedError("the mark that the target keeps of the sink cannot be read") from None
        # The mark of a removed sink with the same name says nothing about this one: taking it over would skip changes.
        return found if found is not None and found.owner == self._owner else None

    def _read_keys(self) -> None:
        self._keys = self._dead_letters.keys(self.name)
        self._keys_read_s = self._clock.monotonic_s()
