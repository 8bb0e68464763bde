"""Control records of partition logs, the `.snapshot` of producer state, and a forwarded principal."""

from barnabas.wire.schema import EMPTY, Message, Struct, int16, int32, int64, uint32


class ControlRecordTypeSchema(Message):
    versions = "0-0"

    type: int16 = 0


class DefaultPrincipal(Message):
    versions = "0-0"
    flexible = "0+"

    type: str = ""
    name: str = ""
    token_authenticated: bool = False


class EndTxnMarker(Message):
    versions = "0-0"

    coordinator_epoch: int32 = 0


class ProducerEntry(Struct):
    producer_id: int64 = 0
    epoch: int16 = 0
    last_sequence: int32 = 0
    last_offset: int64 = 0
    offset_delta: int32 = 0
    timestamp: int64 = 0
    coordinator_epoch: int32 = 0
    current_txn_first_offset: int64 = 0


class ProducerSnapshot(Message):
    versions = "1-1"

    crc: uint32 = 0
    producer_entries: list[ProducerEntry] = EMPTY
