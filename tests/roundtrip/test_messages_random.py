"""Messages made up from their schema come back as they were, in every version."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.wire import catalogue, codec, jsonvalue
from barnabas.wire.schema import DecodeError, versions_of
from tests.fuzz.messages import random_message

NAMES = [*catalogue.names(), *(api + kind for api in catalogue.OWN_APIS.values() for kind in ("Request", "Response"))]
SETTINGS = settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", NAMES)
@SETTINGS
@given(random=st.randoms(use_true_random=False))
def test_a_message_comes_back(name: str, random: Random) -> None:
    cls = catalogue.message_class(name)
    for version in versions_of(cls).all():
        message = random_message(cls, version, random)
        raw = codec.encode_bytes(message, version)
        again, end = codec.decode(cls, version, b"before" + raw + b"after", 6, 6 + len(raw))
        assert end == 6 + len(raw)
        assert again == message
        assert jsonvalue.from_value(cls, version, jsonvalue.to_value(message, version)) == message


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_off_message_is_refused(name: str) -> None:
    random = Random(name)
    cls = catalogue.message_class(name)
    for version in versions_of(cls).all():
        raw = codec.encode_bytes(random_message(cls, version, random), version)
        for end in {0, len(raw) // 3, len(raw) // 2, len(raw) - 1} - {-1, len(raw)}:
            with pytest.raises(DecodeError):
                codec.decode(cls, version, raw, 0, end)
            with pytest.raises(DecodeError):
                codec.decode(cls, version, raw[:end])
