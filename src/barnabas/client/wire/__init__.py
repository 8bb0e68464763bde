"""A small blocking client of our own, for raw batches and administration.

    with Client("127.0.0.1:9092") as client:
        create_topic(client, "hello", partitions=3)
        for fetched in fetch(client, {TopicPartition("hello", 0): 0}):
            print(decode(fetched, 0).records)

It speaks to any broker of Kafka's protocol. One client per thread.
"""

from barnabas.client.wire.address import Address, parse_address, parse_addresses
from barnabas.client.wire.client import Client
from barnabas.client.wire.connection import Connection, ConnectionSettings, connect
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable, ClientError, ProtocolError, UnsupportedApi
from barnabas.client.wire.metadata import BrokerInfo, PartitionInfo, TopicInfo

__all__ = [
    "Address",
    "BrokerError",
    "BrokerInfo",
    "BrokerUnavailable",
    "Client",
    "ClientError",
    "Connection",
    "ConnectionSettings",
    "PartitionInfo",
    "ProtocolError",
    "TopicInfo",
    "UnsupportedApi",
    "connect",
    "parse_address",
    "parse_addresses",
]
