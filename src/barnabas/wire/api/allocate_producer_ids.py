"""AllocateProducerIds: a block of producer ids for a broker."""

from barnabas.wire.schema import Message, int16, int32, int64


class AllocateProducerIdsRequest(Message):
    api_key = 67
    versions = "0-0"
    flexible = "0+"
    served_by = ("controller",)

    broker_id: int32 = 0
    broker_epoch: int64 = -1


class AllocateProducerIdsResponse(Message):
    api_key = 67
    versions = "0-0"
    flexible = "0+"

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id_start: int64 = 0
    producer_id_len: int32 = 0
