"""The common options of all commands, and those of all commands that connect to a cluster.

They may be anywhere on a command line: `kctl --format json topics list` is `kctl topics list --format json`.
"""

from __future__ import annotations

import functools
from typing import Annotated, Literal, get_args

import typer
import typer.main

from kctl.commands.parameters import Parameter

Format = Literal["table", "plain", "json", "jsonl", "yaml", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)
DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT_MS = 30_000
CLUSTER_PANEL = "Cluster options"
OUTPUT_PANEL = "Output options"
QUERY_PANEL = "Options of lists"

_cluster = typer.Typer(add_completion=False)
_change = typer.Typer(add_completion=False)
_consent = typer.Typer(add_completion=False)
_output = typer.Typer(add_completion=False)


@_cluster.command()
def _cluster_options(
    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT[,...]",
            help="Brokers to connect to first; also KCTL_BOOTSTRAP_SERVER.  Default: 127.0.0.1:9092.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="Properties file with client settings, as Kafka's tools take it; also KCTL_COMMAND_CONFIG.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="PROFILE",
            help="Stored settings of a cluster ('kctl profile add'); also KCTL_PROFILE.  Default: the current profile"
            " ('kctl profile use'), if any.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None,
    resolve: Annotated[
        list[str] | None,
        typer.Option(
            "--resolve",
            metavar="NAME=ADDRESS",
            help="Reach brokers of this host name at this address; certificates are checked for the name.  Repeatable;"
            " also KCTL_RESOLVE and the property kctl.resolve, separated by commas.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            help="How long the cluster may take to respond, such as 10s or 500ms.  Default: 30s, of which at most 5s to"
            " connect.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None,
) -> None: ...


@_change.command()
def _change_options(
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm",
            metavar="PROFILE",
            help="Confirm the change of a cluster whose profile is protected, by the name of that profile.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None,
) -> None: ...


@_consent.command()
def _consent_options(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None: ...


@_output.command()
def _output_options(
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="How to show the result.  Default: table on a terminal, plain elsewhere.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    header: Annotated[
        bool,
        typer.Option("--header", help="With plain, begin with a line of column titles.", rich_help_panel=OUTPUT_PANEL),
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="Print the JSON Schema of the output, or with --format jsonl that of a line, and do nothing else.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    human: Annotated[
        bool,
        typer.Option(
            "--human",
            help="With table and plain, show sizes, durations and counts as 1.5 GiB, 3m5s and 12.3k.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color", help="No colours; NO_COLOR and TERM=dumb do the same.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No notes and no progress on stderr.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None: ...


@functools.cache
def cluster_options() -> list[Parameter]:
    """--bootstrap-server, --command-config, --profile and --timeout."""
    return list(typer.main.get_command(_cluster).params)


@functools.cache
def change_options() -> list[Parameter]:
    """--confirm, of the commands that change a cluster."""
    return list(typer.main.get_command(_change).params)


@functools.cache
def consent_options() -> list[Parameter]:
    """--yes, of the commands that change something; those that never ask accept it for scripts."""
    return list(typer.main.get_command(_consent).params)


@functools.cache
def output_options() -> list[Parameter]:
    """--format, --schema, --header, --human, --no-color, --quiet and --debug."""
    return list(typer.main.get_command(_output).params)
