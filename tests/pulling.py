"""A puller of JimDB: registers, copies and follows the ranges of a table, and keeps what it got by key."""

import json
from decimal import Decimal

import grpc

from tailrace.delivery.grpc.proto import jimdb_base_pb2 as base
from tailrace.delivery.grpc.proto import jimdb_cdc_pb2 as proto
from tailrace.delivery.grpc.proto import status_pb2

DEADLINE_S = 60
REGISTER, SNAPSHOT, LOG, FAILED = range(4)


class Client:
    """Calls of `dspb.CdcService`."""

    def __init__(self, address, token=None):
        self.channel = grpc.insecure_channel(
            address, options=[(f"grpc.{name}_reconnect_backoff_ms", 100) for name in ("initial", "min", "max")]
        )
        self.metadata = [("authorization", f"Bearer {token}")] if token else []

    def call(self, method, request, answer):
        calling = self.channel.unary_unary(
            f"/dspb.CdcService/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return calling(request, timeout=DEADLINE_S, metadata=self.metadata, wait_for_ready=True)

    def ranges(self, table, db="default", cluster=0):
        request = proto.CdcRangesRequest(header=proto.RequestHeader(cluster_id=cluster), db_name=db, table_name=table)
        return self.call("CdcRanges", request, proto.CdcRangesResponse)

    def register(self, one, name):
        request = proto.CdcRegisterRequest(range_id=one.id, range_epoch=one.range_epoch, subscriber_name=name)
        return self.call("CdcRegister", request, proto.CdcRegisterResponse)

    def unregister(self, one, name):
        request = proto.CdcUnregisterRequest(range_id=one.id, range_epoch=one.range_epoch, subscriber_name=name)
        return self.call("CdcUnregister", request, proto.CdcUnregisterResponse)

    def pull_snapshot(self, one, name, version=0, last_key=b""):
        request = proto.CdcPullSnapshotRequest(
            range_id=one.id,
            range_epoch=one.range_epoch,
            subscriber_name=name,
            current_snapshot_version=version,
            last_key=last_key,
        )
        return self.call("CdcPullSnapshot", request, proto.CdcPullSnapshotResponse)

    def pull_log(self, one, name, index):
        request = proto.CdcPullLogRequest(
            range_id=one.id, range_epoch=one.range_epoch, subscriber_name=name, last_log_index=index
        )
        return self.call("CdcPullLog", request, proto.CdcPullLogResponse)

    def split(self, one, key=b""):
        request = proto.CdcSplitRequest(range_id=one.id, range_epoch=one.range_epoch, split_key=key)
        return self.call("CdcSplit", request, proto.CdcSplitResponse)

    def subscribe(self, table, name, type_, config, db="default", cluster=0):
        request = proto.SubscribeCDCRequest(
            header=proto.RequestHeader(cluster_id=cluster),
            db_name=db,
            table_name=table,
            subscriber_name=name,
            sink=proto.CDCSink(type=type_, config=config),
        )
        return self.call("SubscribeCDC", request, proto.SubscribeCDCResponse).subscriber

    def unsubscribe(self, table, name, db="default", cluster=0):
        request = proto.UnsubscribeCDCRequest(
            header=proto.RequestHeader(cluster_id=cluster), db_name=db, table_name=table, subscriber_name=name
        )
        return self.call("UnsubscribeCDC", request, proto.UnsubscribeCDCResponse).subscriber

    def close(self):
        self.channel.close()


class Progress:
    """How far a range is: a row of JimDB's table `progress`."""

    def __init__(self, one):
        self.range = one
        self.stage = REGISTER
        self.version = 0
        self.last_key = b""
        self.index = 0

    def inherited(self, one):
        """Return the progress of a range that was split off."""
        made = Progress(one)
        made.stage, made.version, made.index = self.stage, self.version, self.index
        made.last_key = self.last_key if one.start_key <= self.last_key < one.end_key else b""
        return made


class Puller:
    """One subscriber of a table. `step` makes one request for a range; `rows` are what it got, by key."""

    def __init__(self, client, table, name, db="default"):
        self.client = client
        self.name = name
        self.rows = {}
        self.requests = 0
        answer = client.ranges(table, db)
        assert not answer.HasField("error"), answer.error
        self.progress = {one.id: Progress(one) for one in answer.ranges}
        self.columns = [column.name for column in answer.columns]
        self.key_columns = [column.name for column in answer.ranges[0].key_schema.key_cols]

    def step(self, number):
        """Make the next request for a range; return how many rows or changes came."""
        progress = self.progress[number]
        self.requests += 1
        match progress.stage:
            case 0:
                return self._register(progress)
            case 1:
                return self._snapshot(progress)
            case 2:
                return self._log(progress)

    def drain(self, head):
        """Pull all ranges until each has seen the log up to an offset."""
        while any(one.stage != LOG or one.index < head for one in self.progress.values()):
            for number in list(self.progress):
                one = self.progress[number]
                if one.stage != LOG or one.index < head:
                    self.step(number)

    def _register(self, progress):
        try:
            progress.index = self.client.register(progress.range, self.name).init_snapshot_version
        except grpc.RpcError as error:
            self._mend(progress, details(error))
            return 0
        progress.stage = SNAPSHOT
        return 0

    def _snapshot(self, progress):
        answer = self.client.pull_snapshot(progress.range, self.name, progress.version, progress.last_key)
        if answer.HasField("error"):
            self._mend(progress, answer.error)
            return 0
        progress.version = answer.current_snapshot_version
        self._take(answer.snapshot_data)
        if answer.snapshot_data:
            progress.last_key = answer.snapshot_data[-1].key
        if answer.end:
            progress.stage = LOG
        return len(answer.snapshot_data)

    def _log(self, progress):
        answer = self.client.pull_log(progress.range, self.name, progress.index)
        if answer.HasField("error"):
            self._mend(progress, answer.error)
            return 0
        self._take(answer.log_data)
        progress.index = answer.current_log_index
        return len(answer.log_data)

    def _take(self, changes):
        for change in changes:
            if change.type == proto.CdcChangeData.DELETE:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = change.value

    def _mend(self, progress, error):
        """Go on after a split; give up on anything else."""
        if error.WhichOneof("err") == "stale_epoch":
            old, new = error.stale_epoch.old_range, error.stale_epoch.new_range
            if new.id and new.id not in self.progress:
                self.progress[new.id] = progress.inherited(new)
            if progress.last_key >= old.end_key and progress.stage == SNAPSHOT:
                progress.stage = LOG
            progress.range = old
            return
        progress.stage = FAILED
        raise AssertionError(error)

    @property
    def table(self):
        """The rows as tuples in the order of the columns, sorted by key."""
        found = []
        for key, value in sorted(self.rows.items()):
            cells = dict(zip(self.key_columns, values_of(key), strict=True)) | json.loads(value)
            found.append(tuple(cells.get(name) for name in self.columns))
        return found


def details(error):
    """Return the error in the details of a status."""
    trailing = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    assert status.details[0].type_url == "type.googleapis.com/dspb.CDCError"
    return proto.CDCError.FromString(status.details[0].value)


def epoch(conf_ver, version):
    return base.RangeEpoch(conf_ver=conf_ver, version=version)


def values_of(key):
    """Decode a key as the documents say, with no help of ours."""
    values, place = [], 4
    while place < len(key):
        value, place = value_of(key, place)
        values.append(value)
    return values


def value_of(key, place):
    tag, place = key[place], place + 1
    constants = {0x05: None, 0x10: False, 0x11: True, 0x20: float("-inf"), 0x22: 0, 0x24: float("inf")}
    if tag in constants:
        return constants[tag], place
    if tag in (0x21, 0x23):
        turn = 0x7F if tag == 0x21 else 0
        one, two, three = (abs(turn - byte) for byte in key[place : place + 3])
        exponent = (one << 14 | two << 7 | three) - 2**20
        place, digits = place + 3, ""
        while (byte := abs(turn - key[place])) != 0:
            digits += f"{byte - 1:02}"
            place += 1
        place += 1
        number = Decimal(f"0.{digits}").scaleb(exponent)
        number = -number if turn else number
        return (int(number) if number == int(number) else float(number)), place
    data = b""
    while key[place] != 0 or key[place : place + 2] == b"\x00\x7f":
        data += key[place : place + 1]
        place += 2 if key[place] == 0 else 1
    return (data.decode() if tag == 0x30 else data), place + 1
