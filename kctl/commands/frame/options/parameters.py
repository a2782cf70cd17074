"""Properties of the parameters of typer commands, and the common options of all commands."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast, get_args, get_type_hints

import typer
import typer.main

from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.options.values import Expectation, parse_expectation
from kctl.commands.frame.options.vocabulary import Values
from kctl.output.quantities import INT32_MAX

Function = TypeVar("Function", bound=Callable[..., Any])


# Properties of a parameter of a typer command, for help, completion scripts, the reference and checks. Pure.


Parameter = Any
"""A TyperOption or TyperArgument; the module of their base class depends on the version of typer."""


def is_argument(param: Parameter) -> bool:
    """Return whether this is a positional parameter."""
    return bool(param.param_type_name == "argument")


def is_flag(param: Parameter) -> bool:
    """Return whether this is an option without a value."""
    return bool(getattr(param, "is_flag", False))


def flags_of(param: Parameter) -> tuple[str, ...]:
    """`-n`, `--max-messages`; empty for an argument."""
    return () if is_argument(param) else tuple(sorted(param.opts, key=lambda flag: flag.startswith("--")))


def choices_of(param: Parameter) -> tuple[str, ...]:
    """Return the values that a parameter is limited to; empty when it is not."""
    return tuple(getattr(param.type, "choices", ()))


def number_range(param: Parameter) -> tuple[int, int] | None:
    """Return the least and greatest value of an integer; None for other types."""
    low, high = getattr(param.type, "min", None), getattr(param.type, "max", None)
    return None if low is None or high is None else (low, high)


def words_of(params: Iterable[Parameter], values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line with these values by name; parameters with their default are left out."""
    words: list[str] = []
    for param in params:
        value = values.get(str(param.name))
        if value is None or (not is_argument(param) and value == param.default):
            continue
        if is_flag(param):
            words += flags_of(param)[-1:] if value else []
            continue
        for element in value if isinstance(value, (list, tuple)) else (value,):
            words += [shown_value(element)] if is_argument(param) else [flags_of(param)[-1], shown_value(element)]
    return words


def shown_value(value: object) -> str:
    """Return the value as it is written on a command line."""
    return str(getattr(value, "text", value))


def repeats(param: Parameter) -> bool:
    """Return whether it may be given more than once."""
    return bool(param.nargs == -1 or getattr(param, "multiple", False))


def parser_of(param: Parameter) -> Callable[[Any], Any] | None:
    """Return what `typer.Option(parser=...)` gives; None without it."""
    parser = getattr(param.type, "func", None)
    return getattr(parser, "__wrapped__", parser)


def metavar_of(param: Parameter) -> str:
    """Return the placeholder of the value in help."""
    if param.metavar:
        return str(param.metavar)
    if named := getattr(parser_of(param), "metavar", None):
        return str(named)
    if choices_of(param):
        return "|".join(choices_of(param))
    if is_argument(param):
        return str(param.name).upper()
    return "N" if number_range(param) else "TEXT"


def completes(param: Parameter) -> str:
    """ "file" or "directory" if a shell should complete paths, as the metavar implies; else empty."""
    return {"FILE": "file", "FILE[,...]": "file", "DIR": "directory"}.get(metavar_of(param), "")


_NAMES = {
    "TOPIC": "topics",
    "TOPIC[:N,N-N]": "topics",
    "TOPIC:PARTITION": "topics",
    "T:P": "topics",
    "T:P=B,B": "topics",
    "SRC": "topics-from",
    "DST": "topics-to",
    "GROUP": "groups",
    "GROUP[,...]": "groups",
    "APPLICATION": "groups",
    "BROKER": "brokers",
    "USER": "users",
    "PRINCIPAL": "principals",
    "OPERATION": "operations",
    "TRANSACTIONAL_ID": "transactions",
    "PROFILE": "profiles",
}
"""Kinds of names by the metavar."""
_NAMES_OF_PARAMETERS = {
    ("names", "NAME"): "resources",
    ("topic", "NAME"): "topics",
    ("group", "NAME"): "groups",
    ("user", "NAME"): "users",
    ("operation", "NAME"): "operations",
    ("transactional_id", "ID"): "transactions",
    ("command_property", "NAME=VALUE"): "client-properties",
    ("config", "NAME=VALUE"): "topic-properties",
    ("delete_config", "NAME"): "topic-property-names",
    ("set_", "NAME=VALUE"): "resource-properties",
    ("append", "NAME=VALUE"): "resource-properties",
    ("subtract", "NAME=VALUE"): "resource-properties",
    ("delete", "NAME"): "resource-property-names",
    ("property_", "NAME"): "resource-property-names",
    ("property_", "NAME=VALUE"): "client-properties",
    ("override", "NAME=VALUE"): "broker-properties",
}
"""Kinds of names by the name of the parameter and the metavar, where that alone does not tell."""


def completed_values(param: Parameter) -> Values:
    """Return what completes the value of a parameter; kinds of names are those of `kctl.commands.completion.names`."""
    metavar = metavar_of(param)
    is_list = "[,...]" in metavar or "[,ID...]" in metavar
    if choices_of(param):
        return Values("choices", choices_of(param))
    if completes(param):
        return Values("directories" if completes(param) == "directory" else "files", is_list=is_list)
    if param.name in {"broker", "brokers", "to_brokers"}:
        return Values("brokers", is_list=is_list)
    return Values(_NAMES_OF_PARAMETERS.get((str(param.name), metavar)) or _NAMES.get(metavar, ""), is_list=is_list)


def name_of(param: Parameter) -> str:
    """Return the name in error messages: the longest flag, or the metavar of an argument."""
    return metavar_of(param) if is_argument(param) else max(param.opts, key=len)


def help_of(param: Parameter) -> str:
    """Its help, whether it is required or repeatable, and its default."""
    text = str(param.help)
    if param.required and not is_argument(param):
        text += "  Required."
    if repeats(param) and not is_argument(param):
        text += "  May be repeated."
    if not is_flag(param) and not repeats(param) and param.default not in {None, ""}:
        text += f"  Default: {shown_value(param.default)}."
    return text


# The common options of all commands, and those of all commands that connect to a cluster.
#
# They may be anywhere on a command line: `kctl --format json topics list` is `kctl topics list --format json`.


Format = Literal["table", "plain", "json", "jsonl", "yaml", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)
DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT_MS = 30_000
CLUSTER_PANEL = "Cluster options"
OUTPUT_PANEL = "Output options"
QUERY_PANEL = "Options of lists"
INTERVAL_DEFAULT = "2s"
KAFKA_PANEL = "Output of Kafka's tools"
"""Options with which a verb prints the text of another program instead of rows."""
NOT_AN_OPTION = "not an option"
"""Marks a parameter of a verb that callers in Python give: `Annotated[Report, NOT_AN_OPTION]`."""


class ClusterOptions(NamedTuple):
    """The options that select the cluster, of the commands that connect to one."""

    bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT[,...]",
            help="Brokers to connect to first; also KCTL_BOOTSTRAP_SERVER.  Default: 127.0.0.1:9092.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="Properties file with client settings, as Kafka's tools take it; also KCTL_COMMAND_CONFIG.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None
    command_property: Annotated[
        list[str] | None,
        typer.Option(
            "--command-property",
            metavar="NAME=VALUE",
            help="A client setting, before those of --command-config; no secrets.  Repeatable.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="PROFILE",
            help="Stored settings of a cluster ('kctl profile add'); also KCTL_PROFILE.  Default: the current profile"
            " ('kctl profile use'), if any.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None
    resolve: Annotated[
        list[str] | None,
        typer.Option(
            "--resolve",
            metavar="NAME=ADDRESS",
            help="Reach brokers of this host name at this address; certificates are checked for the name.  Repeatable;"
            " also KCTL_RESOLVE and the property kctl.resolve, separated by commas.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None
    timeout: Annotated[
        Duration | None,
        typer.Option(
            "--timeout",
            parser=Duration,
            help="How long the cluster may take to respond, such as 10s or 500ms.  Default: 30s, of which at most 5s to"
            " connect.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None


BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT[,...]",
        help="Controllers of a KRaft cluster to connect to instead of brokers, also if no broker responds (Kafka 3.7).",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
"""An option of the commands that controllers answer, as Kafka's tools have it (KIP-919)."""


class ChangeOptions(NamedTuple):
    """The options of the commands that change a cluster."""

    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm",
            metavar="PROFILE",
            help="Confirm the change of a cluster whose profile is protected, by the name of that profile.",
            rich_help_panel=CLUSTER_PANEL,
        ),
    ] = None


class ConsentOptions(NamedTuple):
    """The options of the commands that change something; those that never ask accept them for scripts."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False


class OutputOptions(NamedTuple):
    """The options of all commands."""

    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="How to show the result.  Default: table on a terminal, plain elsewhere.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None
    header: Annotated[
        bool,
        typer.Option(
            "--header",
            help="Begin with a line of column titles in plain too, as in a pipe.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False
    no_header: Annotated[
        bool,
        typer.Option(
            "--no-header", help="No line of column titles, as in table and csv.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = False
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="Print the JSON Schema of the output, or with --format jsonl that of a line, and do nothing else.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False
    human: Annotated[
        bool,
        typer.Option(
            "--human",
            help="With table and plain, show sizes, durations and counts as 1.5 GiB, 3m5s and 12.3k.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color", help="No colours; NO_COLOR and TERM=dumb do the same.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No notes and no progress on stderr.", rich_help_panel=OUTPUT_PANEL)
    ] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT_PANEL)
    ] = False


class QueryOptions(NamedTuple):
    """The options of the commands that list something."""

    expect: Annotated[
        Expectation | None,
        typer.Option(
            "--expect",
            metavar="N",
            parser=parse_expectation,
            help="Exit with status 3 unless there are N rows; also '>=N', '>N', '<=N', '<N' and '!=N'.",
            rich_help_panel=QUERY_PANEL,
        ),
    ] = None
    watch: Annotated[
        Duration | None,
        typer.Option(
            "--watch",
            metavar="[DURATION]",
            parser=Duration.within("100ms", "1h"),
            help=f"Repeat at this interval, by default {INTERVAL_DEFAULT}, until interrupted or until --expect holds.",
            rich_help_panel=QUERY_PANEL,
        ),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            metavar="N",
            help="With --watch: end after N rounds.",
            min=1,
            max=INT32_MAX,
            rich_help_panel=QUERY_PANEL,
        ),
    ] = None


@functools.cache
def options_in(group: type[NamedTuple]) -> list[Parameter]:
    """Return the options that are the fields of a NamedTuple, as typer reads them."""

    def function(**_: object) -> None: ...

    function.__signature__ = signature_of(group)  # type: ignore[attr-defined]  # what typer reads
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return list(typer.main.get_command(app).params)


def with_groups(function: Function) -> Function:
    """Let typer see the fields of each parameter whose type is a NamedTuple of options as options of the function.

    class EntityOptions(NamedTuple):
        user: Annotated[str | None, typer.Option("--user", help="The user.")] = None
        ip: Annotated[str | None, typer.Option("--ip", help="The IP address.")] = None

    @verbs.command("describe", cls=QueryCommand)
    @with_groups
    def describe(ctx: typer.Context, *, entity: EntityOptions) -> ExitStatus:

    typer does not see a parameter that is marked as NOT_AN_OPTION.
    """
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and hasattr(hint, "_fields")}

    @functools.wraps(function)
    def flat(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in group._fields})
        return function(**given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            parameters += signature_of(groups[name]).parameters.values()
        elif NOT_AN_OPTION not in getattr(hints[name], "__metadata__", ()):
            parameters.append(parameter.replace(annotation=hints[name]))
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    return cast("Function", flat)


def signature_of(group: type[NamedTuple]) -> inspect.Signature:
    """Return the fields of a NamedTuple as keyword parameters, with their types and defaults."""
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(
                name, kind, annotation=hint, default=group._field_defaults.get(name, inspect.Parameter.empty)
            )
            for name, hint in hints.items()
        ]
    )


def cluster_options() -> list[Parameter]:
    """--bootstrap-server, --command-config, --command-property, --profile, --resolve and --timeout."""
    return options_in(ClusterOptions)


def change_options() -> list[Parameter]:
    """--confirm, of the commands that change a cluster."""
    return options_in(ChangeOptions)


def consent_options() -> list[Parameter]:
    """--yes, of the commands that change something; those that never ask accept it for scripts."""
    return options_in(ConsentOptions)


def output_options() -> list[Parameter]:
    """--format, --schema, --header, --human, --no-color, --quiet and --debug."""
    return options_in(OutputOptions)


def query_options() -> list[Parameter]:
    """Return --expect, --watch and --rounds, of the commands that list something."""
    return options_in(QueryOptions)
