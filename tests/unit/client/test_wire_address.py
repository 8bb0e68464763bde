"""Broker addresses."""

import pytest

from barnabas.client.wire import Address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:1", Address("localhost", 1)),
        ("localhost", Address("localhost", 9092)),
        ("[::1]:19092", Address("::1", 19092)),
        ("[::1]", Address("::1", 9092)),
        (" 10.0.0.1:65535 ", Address("10.0.0.1", 65535)),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":9092", "host:x", "host:0", "host:65536", "::1", "[::1", "[::1]x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not HOST:PORT|not a port"):
        parse_address(text)


def test_a_list_has_commas() -> None:
    assert parse_addresses("a:1, b:2,") == [Address("a", 1), Address("b", 2)]
    with pytest.raises(ValueError, match="no HOST:PORT"):
        parse_addresses(" , ")
