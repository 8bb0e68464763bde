"""``barnabas topic``: create, list, describe, alter, delete."""

from __future__ import annotations

from typing import Any

import click

from barnabas.app.program import program
from barnabas.cli.options import parse_pairs, server_options
from barnabas.cli.output import print_described, print_json, print_table, size_text
from barnabas.cli.suggestions import (
    CommandGroup,
    naming_topic_settings,
    naming_topics,
    no_such_topic,
    no_such_topic_setting,
)
from barnabas.client.wire import BrokerError, BrokerUnavailable, Client, TopicInfo, admin
from barnabas.client.wire.admin import ConfigEntry, ConfigSource, ListedOffset, ResourceType
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition, uuid_text


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, list, describe, alter and delete topics.

    Examples:
      barnabas topic create hello --partitions 3 --config retention.ms=86400000
      barnabas topic list
      barnabas topic describe hello
      barnabas topic alter hello --partitions 6 --delete-config retention.ms
      barnabas topic delete hello --yes
    """


@topic.command()
@click.argument("name")
@click.option("--partitions", "-p", type=click.IntRange(1), help="How many; the broker's num.partitions without.")
@click.option("--replication-factor", "-r", type=click.IntRange(1, 32767), help="Copies; the broker's default without.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", callback=parse_pairs, help="A setting.")
@click.option("--if-not-exists", is_flag=True, help="Succeed where the topic is there already.")
@server_options
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a topic.

    Examples:
      barnabas topic create hello
      barnabas topic create orders --partitions 12 --config cleanup.policy=compact
      barnabas topic create orders --if-not-exists --json
    """
    with Client(bootstrap) as client, naming_topic_settings(configs):
        try:
            made = admin.create_topic(
                client, name, partitions=partitions or -1, replication_factor=replication_factor or -1, configs=configs
            )
        except BrokerError as error:
            if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            _say_existing(name, as_json)
            return
    if as_json:
        shown = {"name": name, "created": True, "topic_id": uuid_text(made.topic_id)}
        print_json({**shown, "partitions": made.num_partitions, "replication_factor": made.replication_factor})
        return
    several = "" if made.num_partitions == 1 else "s"
    click.echo(f"Created topic {name} with {made.num_partitions} partition{several}.")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also the topics that the brokers keep for themselves.")
@server_options
def list_topics(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List topics.

    Examples:
      barnabas topic list
      barnabas topic list --internal --json
    """
    with Client(bootstrap) as client:
        topics = sorted(client.load(None).values())
    rows = [
        {
            "name": item.name,
            "partitions": len(item.partitions),
            "replication_factor": _replication_factor(item),
            "internal": item.is_internal,
        }
        for item in topics
        if internal or not item.is_internal
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(["name", "partitions", "replicas"], [list(row.values())[:3] for row in rows])
    else:
        click.echo(f"There are no topics. Create one with: {program()} topic create NAME", err=True)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@server_options
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show partitions, replicas, offsets, sizes, and settings that are not the default.

    Examples:
      barnabas topic describe hello
      barnabas topic describe hello orders --json
    """
    with Client(bootstrap) as client, naming_topics(client, *names):
        client.load(names)
        shown = [_described(client, client.topic(name)) for name in dict.fromkeys(names)]
    print_described(shown, as_json, _print_topic)


@topic.command()
@click.argument("name")
@click.option("--partitions", "-p", type=click.IntRange(1), help="Grow to so many. There is no way back.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", callback=parse_pairs, help="Set one.")
@click.option("--delete-config", "deleted", multiple=True, metavar="KEY", help="Give a setting back its default.")
@server_options
def alter(
    name: str,
    partitions: int | None,
    configs: dict[str, str],
    deleted: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Add partitions, change settings.

    Examples:
      barnabas topic alter hello --partitions 6
      barnabas topic alter hello --config retention.ms=3600000 --delete-config cleanup.policy
    """
    if not (partitions or configs or deleted):
        raise click.UsageError("Nothing to alter: give --partitions, --config or --delete-config.")
    with Client(bootstrap) as client, naming_topics(client, name), naming_topic_settings(configs):
        if deleted:
            _check_names(client, name, deleted)
        if configs or deleted:
            admin.alter_configs(client, ResourceType.TOPIC, name, changed=configs, deleted=deleted)
        if partitions:
            admin.create_partitions(client, name, partitions)
    if as_json:
        print_json({"name": name, "partitions": partitions, "set": configs, "deleted": list(deleted)})
    else:
        click.echo(f"Altered topic {name}.")


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@server_options
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics and all their messages.

    Examples:
      barnabas topic delete hello
      barnabas topic delete hello orders --yes
    """
    if not yes:
        click.confirm(f"Delete {', '.join(names)} and all messages?", abort=True, err=True)
    with Client(bootstrap) as client:
        results = admin.delete_topics(client, list(dict.fromkeys(names)))
        problems = [_why_not(client, name, error) for name, error in sorted(results.items()) if error]
    if as_json:
        print_json([{"name": name, "error": error and error.code.name} for name, error in sorted(results.items())])
    else:
        for name in [name for name, error in sorted(results.items()) if error is None]:
            click.echo(f"Deleted topic {name}.")
    if problems:
        raise click.ClickException(" ".join(problems))


def _say_existing(name: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "created": False})
    else:
        click.echo(f"Topic {name} exists already.")


def _replication_factor(item: TopicInfo) -> int:
    return max((len(part.replicas) for part in item.partitions.values()), default=0)


def _described(client: Client, info: TopicInfo) -> dict[str, Any]:
    partitions = [TopicPartition(info.name, part.partition) for part in info.partitions.values() if part.leader >= 0]
    earliest = _offsets(client, partitions, admin.EARLIEST)
    latest = _offsets(client, partitions, admin.LATEST)
    sizes = _sizes(client, info)
    settings = admin.describe_configs(client, ResourceType.TOPIC, [info.name])[info.name]
    rows = []
    for part in info.partitions.values():
        key = TopicPartition(info.name, part.partition)
        rows.append(
            {
                "partition": part.partition,
                "leader": part.leader if part.leader >= 0 else None,
                "leader_epoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "in_sync_replicas": list(part.in_sync_replicas),
                "offline_replicas": list(part.offline_replicas),
                "earliest_offset": earliest[key].offset if key in earliest else None,
                "latest_offset": latest[key].offset if key in latest else None,
                "size_bytes": sizes.get(key),
            }
        )
    return {
        "name": info.name,
        "topic_id": uuid_text(info.topic_id),
        "internal": info.is_internal,
        "replication_factor": _replication_factor(info),
        "partitions": rows,
        "settings": [_setting(item) for item in settings if item.source is not ConfigSource.DEFAULT],
    }


def _offsets(client: Client, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, ListedOffset]:
    """Nothing where a leader went away meanwhile: the rest of the description is worth showing."""
    try:
        return admin.list_offsets(client, dict.fromkeys(partitions, timestamp))
    except (BrokerError, BrokerUnavailable):
        return {}


def _sizes(client: Client, info: TopicInfo) -> dict[TopicPartition, int]:
    """What the partition takes on its leader's disk."""
    leaders = {TopicPartition(info.name, part.partition): part.leader for part in info.partitions.values()}
    return {
        key: size
        for directory in admin.describe_log_dirs(client, {info.name: list(info.partitions)}, skip_unavailable=True)
        for key, size in directory.sizes.items()
        if leaders.get(key) == directory.node_id
    }


def _setting(item: ConfigEntry) -> dict[str, str | None]:
    return {
        "name": item.name,
        "value": None if item.sensitive else item.value,
        "source": item.source.name.lower().replace("_", " "),
    }


def _print_topic(item: dict[str, Any]) -> None:
    click.echo(f"Topic {item['name']}  id {item['topic_id']}{'  internal' if item['internal'] else ''}")
    columns = ["partition", "leader", "replicas", "in sync", "earliest", "latest", "size"]
    rows = [
        [
            part["partition"],
            part["leader"],
            ",".join(map(str, part["replicas"])),
            ",".join(map(str, part["in_sync_replicas"])),
            part["earliest_offset"],
            part["latest_offset"],
            None if part["size_bytes"] is None else size_text(part["size_bytes"]),
        ]
        for part in item["partitions"]
    ]
    print_table(columns, rows)
    if item["settings"]:
        click.echo()
        print_table(["setting", "value", "from"], [list(entry.values()) for entry in item["settings"]])
    else:
        click.echo("All settings are the default.")


def _check_names(client: Client, topic: str, deleted: tuple[str, ...]) -> None:
    """Brokers take the deletion of a setting that no topic has for done."""
    known = {entry.name for entry in admin.describe_configs(client, ResourceType.TOPIC, [topic])[topic]}
    for key in deleted:
        if key not in known:
            raise no_such_topic_setting(key)


def _why_not(client: Client, name: str, error: BrokerError) -> str:
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return no_such_topic(client, name).message
    return f"{error}."
