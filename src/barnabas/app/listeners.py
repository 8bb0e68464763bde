"""The addresses that a node binds and those that it advertises."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from msgspec import Struct

from barnabas.core.metadata.image import Endpoint
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import StartError
from barnabas.net.binding import UNRESOLVED, BoundSocket, address_of

_LISTENER = re.compile(r"([A-Za-z0-9_\-]+)://(\[[0-9a-fA-F:.%]*\]|[^:/\[\]]*):(\d{1,5})")
_WILDCARDS = ("0.0.0.0", "::", "")
MAX_PORT = 65535


class Address(Struct, frozen=True):
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BoundListener(Struct):
    address: Address
    """As bound: the port is the real one."""
    advertised: Endpoint
    socket: BoundSocket


def parse(key: str, texts: Sequence[str]) -> list[Address]:
    addresses = []
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None:
            raise StartError(
                f"Invalid value {text} for configuration {key}: write NAME://HOST:PORT, an IPv6 address in brackets."
            )
        if int(match[3]) > MAX_PORT:
            raise StartError(f"Invalid value {text} for configuration {key}: ports are 0 to {MAX_PORT}.")
        addresses.append(Address(match[1].upper(), match[2].strip("[]"), int(match[3])))
    names = [address.name for address in addresses]
    if len(set(names)) != len(names):
        raise StartError(
            f"Invalid value {','.join(texts)} for configuration {key}: each listener needs a name of its own."
        )
    return addresses


def client_listeners(settings: BrokerSettings) -> list[Address]:
    """Those that clients connect to."""
    controllers = {name.upper() for name in settings.controller_listener_names}
    found = [address for address in parse("listeners", settings.listeners) if address.name not in controllers]
    _check_protocols(settings, found)
    if not found:
        raise StartError("No listener for clients: set listeners, e.g. PLAINTEXT://127.0.0.1:9092.")
    return found


def _check_protocols(settings: BrokerSettings, addresses: Sequence[Address]) -> None:
    protocols = dict(entry.upper().split(":", 1) for entry in settings.listener_security_protocol_map if ":" in entry)
    for address in addresses:
        protocol = protocols.get(address.name, address.name)
        if protocol != "PLAINTEXT":
            raise StartError(
                f"Listener {address.name} asks for {protocol}: this version speaks PLAINTEXT only. "
                f"Use PLAINTEXT://…, or map the name with listener.security.protocol.map={address.name}:PLAINTEXT."
            )


def controller_endpoint(settings: BrokerSettings, bound: BoundListener | None) -> tuple[str, str, int]:
    """What the voters record names: where the controller is reached, or would be if ``listeners`` named it."""
    if bound is not None:
        return bound.advertised.name, bound.advertised.host, bound.advertised.port
    names = [name.upper() for name in settings.controller_listener_names]
    return (names or ["CONTROLLER"])[0], "localhost", 9093


def is_loopback(host: str) -> bool:
    if host in ("localhost", "127.0.0.1"):
        return True
    import ipaddress  # noqa: PLC0415 -- most brokers on a laptop never ask

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(settings: BrokerSettings) -> list[BoundListener]:
    """Binds every listener; none accepts connections before ``listen``."""
    wanted = client_listeners(settings)
    told = _advertised(settings)
    known = {address.name for address in parse("listeners", settings.listeners)}
    unknown = [name for name in told if name not in known]
    if unknown:
        raise StartError(f"advertised.listeners names {unknown[0]}, which is not among listeners.")
    bound: list[BoundListener] = []
    try:
        bound.extend(_bind(address, told.get(address.name)) for address in wanted)
    except StartError:
        for listener in bound:
            listener.socket.close()
        raise
    return bound


def _bind(address: Address, told: Address | None) -> BoundListener:
    if told is None and address.host in _WILDCARDS:
        raise StartError(
            f"Listening on every interface ({address.host or 'no host'}) needs an address that clients can reach. Add "
            f"--set advertised.listeners={address.name}://HOST:{address.port or 9092}, where HOST is this machine's "
            "name or address as clients know it."
        )
    try:
        sock = BoundSocket(address.host, address.port)
    except (OSError, UnicodeError) as problem:
        raise StartError(cannot_listen(address, problem)) from None
    port = sock.port
    actual = Address(address.name, address.host, port)
    if told is None:
        return BoundListener(actual, Endpoint(address.name, address.host, port), sock)
    if told.host in _WILDCARDS:
        sock.close()
        raise StartError(
            f"advertised.listeners gives {told.host or 'no host'} for {told.name}: clients need a real address."
        )
    return BoundListener(actual, Endpoint(address.name, told.host, told.port or port), sock)


def _advertised(settings: BrokerSettings) -> dict[str, Address]:
    return {address.name: address for address in parse("advertised.listeners", settings.advertised_listeners or ())}


def bind_controller(settings: BrokerSettings) -> BoundListener | None:
    """The listener for other nodes and for clients of the controller (KIP-919), where ``listeners`` names it."""
    controllers = {name.upper() for name in settings.controller_listener_names}
    wanted = [address for address in parse("listeners", settings.listeners) if address.name in controllers][:1]
    _check_protocols(settings, wanted)
    for address in wanted:
        host = "localhost" if address.host in _WILDCARDS else address.host
        return _bind(address, _advertised(settings).get(address.name) or Address(address.name, host, address.port))
    return None


def listen(bound: BoundListener, backlog: int) -> None:
    """Lets clients in. Two processes may have bound the same port; the first to listen has it."""
    try:
        bound.socket.listen(backlog)
    except OSError as problem:
        raise StartError(cannot_listen(bound.address, problem)) from None


def cannot_listen(address: Address, problem: OSError | UnicodeError) -> str:
    """The address, the reason, and what to do about it."""
    reason = (getattr(problem, "strerror", None) or str(problem)).lower()
    code = problem.errno if isinstance(problem, OSError) else None
    if isinstance(problem, UNRESOLVED):
        remedy = "Give an address of this machine, e.g. --listen 127.0.0.1:9092."
    elif code == errno.EADDRINUSE:
        other = Address(address.name, address.host, address.port + (1 if address.port < MAX_PORT else -1))
        remedy = f"Another process listens there: stop it, or choose another port, e.g. --listen {other}."
    elif code == errno.EACCES:
        other = Address(address.name, address.host, 9092)
        remedy = f"Ports below 1024 need privileges: choose a higher one, e.g. --listen {other}."
    elif code == errno.EADDRNOTAVAIL:
        remedy = "This machine has no such address; 127.0.0.1 is always there."
    else:
        remedy = "Choose another with --listen HOST:PORT."
    return f"Cannot listen on {address}: {reason}. {remedy}"


def limits_by_address(overrides: str) -> dict[str, int]:
    """max.connections.per.ip.overrides as Kafka reads it: names of hosts stand for their addresses."""
    limits = {}
    for entry in filter(None, map(str.strip, overrides.split(","))):
        host, _, number = entry.rpartition(":")
        address = address_of(host.strip("[]"))
        if not address or not number.isdecimal():
            raise StartError(
                f"Invalid value {entry} for configuration max.connections.per.ip.overrides: write HOST:NUMBER."
            )
        limits[address] = int(number)
    return limits
