"""The durable, numbered log of one shard. The format and the crash argument are in docs/log-format.md."""

from tailrace.log.files import DiskFiles, File, Files
from tailrace.log.hybrid import HybridClock
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.log.reader import LogReader
from tailrace.log.segments import SegmentSummary
from tailrace.log.verify import LogVerification, verify

__all__ = [
    "DiskFiles",
    "File",
    "Files",
    "HybridClock",
    "Log",
    "LogOptions",
    "LogReader",
    "LogVerification",
    "SegmentSummary",
    "verify",
]
