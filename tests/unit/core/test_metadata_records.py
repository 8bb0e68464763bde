"""Metadata records in the log."""

from __future__ import annotations

import pytest

from barnabas.core.metadata import records
from barnabas.wire.codec import DecodeError
from barnabas.wire.stored.metadata_control import NoOpRecord
from barnabas.wire.stored.metadata_topics import TopicRecord
from barnabas.wire.stored.raft import LeaderChangeMessage


def test_the_frame_stands_before_the_message() -> None:
    encoded = records.encode(TopicRecord(name="orders", topic_id=b"1" * 16))
    assert encoded[:3] == bytes((1, 2, 0))
    assert records.decode(encoded) == TopicRecord(name="orders", topic_id=b"1" * 16)


@pytest.mark.parametrize("value", [b"", b"\x01\x02", b"\x02\x02\x00", b"\x01\x82\x01\x00", b"\x01\x14\x00\x00extra"])
def test_what_is_not_a_record(value: bytes) -> None:
    with pytest.raises(DecodeError):
        records.decode(value)


@pytest.mark.parametrize("value", [b"\x01\x7f\x00\x00", b"\x01\x14\x01\x00"])
def test_a_type_or_version_of_a_newer_build(value: bytes) -> None:
    with pytest.raises(records.UnknownRecord):
        records.decode(value)


def test_a_message_that_is_no_metadata_record() -> None:
    assert records.decode_all([records.encode(NoOpRecord())]) == [NoOpRecord()]
    with pytest.raises(records.UnknownRecord):
        records.encode(LeaderChangeMessage())
