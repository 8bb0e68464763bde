"""The quorum as a command may find it: with a leader, or without one and then in words that help."""

from __future__ import annotations

from barnabas.client.wire import (
    Address,
    BrokerError,
    Client,
    ClientError,
    ConnectionSettings,
    UnsupportedApi,
    cluster,
    connect,
)
from barnabas.client.wire.cluster import QuorumInfo

WAIT_S = 6.0
"""An election takes two seconds or less where a majority of the voters runs."""
_PROBE = ConnectionSettings(client_id="barnabas-probe", connect_timeout_s=1.0, request_timeout_s=2.0)


class NoLeader(Exception):
    """The message says which brokers do not answer."""


def find(bootstrap: str) -> QuorumInfo | None:
    """None where the brokers do not tell (old ones). Raises NoLeader, or ClientError where no broker answers."""
    limits = ConnectionSettings(client_id="barnabas-quorum", request_timeout_s=WAIT_S)
    with Client(bootstrap, limits, timeout_s=WAIT_S) as client:
        client.load([])
        try:
            quorum = cluster.describe_quorum(client)
        except UnsupportedApi:
            return None
        except (BrokerError, ClientError) as problem:  # a broker itself waits for a leader longer than this
            raise NoLeader(_explain(client)) from problem
    if quorum.leader_id < 0:
        raise NoLeader("The metadata quorum has no leader")
    return quorum


def _explain(client: Client) -> str:
    away = [broker for broker in cluster.list_brokers(client) if not _answers(broker.address)]
    names = ", ".join(f"{broker.node_id} ({broker.address})" for broker in away)
    said = f"; no answer from {names}" if away else ""
    return f"The metadata quorum has no leader: less than a majority of its voters is there{said}"


def _answers(address: Address) -> bool:
    try:
        connect(address, _PROBE).close()
    except ClientError:
        return False
    return True
