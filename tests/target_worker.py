"""A process that sends messages to a target, to be killed at any moment."""

from tailrace.message.targets import target_of
from tailrace.sink_url import parse
from target_messages import Teller
from trying import patiently

MESSAGES = 600
BATCH = 20


def tell():
    """Return a teller and its messages, the same in every process: rows of a snapshot, then changes."""
    teller = Teller()
    before = teller.changes(5, keys=5)
    return teller, before + teller.snapshot(195) + teller.changes(MESSAGES - 200, keys=11)


def opened(target, schemas):
    """Open a target; return its mark."""
    target.open(schemas)
    return target.mark()


def work(url, name, confirmed, told):
    """Send what is not confirmed, or what the target has no mark of, telling how far each batch came."""
    teller, messages = tell()
    target = target_of(parse(url), name)
    mark = patiently(opened, target, teller.schemas)
    begin = int(mark or 0) if mark is not None else confirmed
    told.send(begin)
    while begin < len(messages):
        end = min(begin + BATCH, len(messages))
        assert not patiently(target.send, messages[begin:end], b"%d" % end)
        begin = end
        told.send(begin)
    target.close()
