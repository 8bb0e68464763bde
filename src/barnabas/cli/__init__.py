"""The command ``barnabas``.

Commands are imported when they are called, so that ``--help`` does not load a broker.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from barnabas.cli.suggestions import CommandGroup

HERE = "barnabas.cli"

COMMANDS: dict[str, tuple[str, str, str]] = {
    # name: (module, attribute, what it does)
    "serve": ("serve", "serve", "Run a broker."),
    "topic": ("topic", "topic", "Create, list, describe, alter and delete topics."),
    "produce": ("produce", "produce", "Send lines as messages."),
    "consume": ("consume", "consume", "Print messages."),
    "group": ("group", "group", "List, describe, reset and delete consumer groups."),
    "transaction": ("transaction", "transaction", "List, describe and abort transactions; find hanging ones."),
    "cluster": ("cluster", "cluster", "Run a cluster on this machine, and try faults on it."),
    "broker": ("broker", "broker", "List brokers, their load and counters; drain and remove them."),
    "partition": ("partition", "partition", "Move replicas, elect leaders, balance a cluster."),
    "quorum": ("quorum", "quorum", "Show and change the voters of the metadata quorum."),
    "storage": ("storage", "storage", "Format data folders of a cluster, and inspect them."),
    "log": ("log_dump", "log", "Look into segment files and verify them."),
    "pipeline": ("pipeline", "pipeline", "Topics into tables and back, with Spark."),
    "wire": ("wire", "wire", "Decode and encode protocol messages."),
    "adopt": ("adopt", "adopt", "Take over the folder of a single-node Kafka."),
    "bench": ("bench", "bench", "Measure a broker under load."),
}


class LazyGroup(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"{HERE}.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Outermost, because --help and --version write while the arguments are parsed."""
        if sys.stdout is None:  # started with >&-
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
        try:
            return super().main(*arguments, **options)
        except OSError as error:
            from barnabas.cli.output import discard_output, is_output_error  # noqa: PLC0415 - most runs need none

            if not is_output_error(error):
                raise
            discard_output()
            click.echo(f"Error: Cannot write to standard output: {(error.strerror or str(error)).lower()}.", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Turns exceptions into sentences."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from barnabas.cli.output import discard_output  # noqa: PLC0415 - most runs need none

            discard_output()
            ctx.exit(0)
        except KeyboardInterrupt:
            ctx.exit(130)
        except click.exceptions.Exit:
            raise
        except Exception as error:
            sentence = _sentence(error)
            if sentence is None:
                raise
            raise click.ClickException(sentence) from error


def _sentence(error: Exception) -> str | None:
    """The message for the user, or None for a defect of ours. Imports late: most runs have no error."""
    from barnabas.client.wire.errors import BrokerError, BrokerUnavailable, ClientError  # noqa: PLC0415

    if isinstance(error, BrokerUnavailable):
        remedy = _start_hint(error.address) if error.reason == "connection refused" else ""
        return f"No broker answers at {error.address}: {error.reason}. {remedy}".rstrip()
    if isinstance(error, (BrokerError, ClientError)):
        text = str(error)
        return f"{text[:1].upper()}{text[1:]}."
    librdkafka = sys.modules.get("confluent_kafka")
    if librdkafka is not None and isinstance(error, librdkafka.KafkaException):
        return f"{error.args[0].str()}."
    return None


def _start_hint(address: str) -> str:
    from barnabas.app.program import program  # noqa: PLC0415
    from barnabas.cli.options import DEFAULT_BOOTSTRAP  # noqa: PLC0415 - most runs have no error

    if address == DEFAULT_BOOTSTRAP:
        return f"Start one with: {program()} serve"
    here = address.startswith(("127.", "localhost:", "[::1]:")) and "," not in address
    return f"Start one with: {program()} serve --listen {address}" if here else ""


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value:
        return
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - rarely asked

    try:
        click.echo(f"barnabas {version('barnabas')}")
    except PackageNotFoundError:
        click.echo("barnabas, run from its sources")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Say which.")
def main() -> None:
    """Barnabas: a message broker that speaks Kafka's protocol.

    Commands that ask a broker work with any broker of that protocol; `broker metrics` needs Barnabas.

    Examples:
      barnabas serve --data ./data
      barnabas topic create hello --partitions 3
      barnabas produce hello --message 'first message'
      barnabas consume hello --offset earliest
      barnabas COMMAND --help
    """
