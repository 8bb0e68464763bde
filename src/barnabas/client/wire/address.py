"""Broker addresses: ``host:port``, and lists of them."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """``host``, ``host:port`` or ``[IPv6]:port``; Kafka's port where there is none. Raises ValueError."""
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not HOST:PORT")
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
    if not host or ":" in port:
        raise ValueError(f"{text!r} is not HOST:PORT (an IPv6 address stands in brackets)")
    if not port:
        return Address(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r}: {port!r} is not a port")
    return Address(host, int(port))


def parse_addresses(text: str) -> list[Address]:
    """A list with commas, as ``bootstrap.servers`` has it. Raises ValueError."""
    addresses = [parse_address(part) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError("no HOST:PORT is given")
    return addresses
