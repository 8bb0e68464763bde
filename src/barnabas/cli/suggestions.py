"""Commands with examples, suggestions for misspelt names, and groups of commands that make them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from barnabas.app.program import program

if TYPE_CHECKING:
    from barnabas.client.wire import Client


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` Did you mean X?``, or nothing where no name is near."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only for errors

    near = get_close_matches(name, list(known), 3)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _split_help(options: dict[str, Any]) -> dict[str, Any]:
    """What stands in a docstring from ``Examples:`` on is printed after the options, line by line."""
    text, mark, examples = inspect.cleandoc(options.get("help") or "").partition("\nExamples:\n")
    return {**options, "help": text, "epilog": f"\b\nExamples:\n{examples}"} if mark else options


class Command(click.Command):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **_split_help(options))


class CommandGroup(click.Group):
    command_class = Command

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **_split_help(options))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command {name!r}.{did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def no_such_topic(client: Client, name: str) -> click.ClickException:
    hint = did_you_mean(name, client.load(None)) or f" List them with: {program()} topic list"
    return click.ClickException(f"There is no topic {name}.{hint}")


@contextmanager
def naming_topics(client: Client, *names: str) -> Iterator[None]:
    """Where the broker does not know one of these topics, says so and suggests another."""
    from barnabas.client.wire import BrokerError  # noqa: PLC0415 -- keeps --help fast
    from barnabas.model.errors import ErrorCode  # noqa: PLC0415

    try:
        yield
    except BrokerError as error:
        missing = [name for name in names if error.subject == f"topic {name}"]
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not missing:
            raise
        raise no_such_topic(client, missing[0]) from error


@contextmanager
def naming_topic_settings(keys: Iterable[str]) -> Iterator[None]:
    """Where the broker refuses a topic setting that has no such name, suggests another."""
    from barnabas.client.wire import BrokerError  # noqa: PLC0415 -- keeps --help fast
    from barnabas.model.errors import ErrorCode  # noqa: PLC0415

    try:
        yield
    except BrokerError as error:
        unknown = [key for key in keys if key not in topic_setting_names()]
        if error.code is not ErrorCode.INVALID_CONFIG or not unknown:
            raise
        raise no_such_topic_setting(unknown[0]) from error


def topic_setting_names() -> list[str]:
    from barnabas.model.settings import described  # noqa: PLC0415 -- keeps --help fast
    from barnabas.model.topic_settings import TopicSettings  # noqa: PLC0415

    return list(described(TopicSettings))


def no_such_topic_setting(key: str) -> click.ClickException:
    hint = did_you_mean(key, topic_setting_names())
    return click.ClickException(f"Topics have no setting {key}.{hint}")
