"""The options that every command takes, and those of every command that talks to a cluster.

They may stand anywhere: `kctl --format json topics list` is `kctl topics list --format json`.
"""

from __future__ import annotations

from kctl.commands.declaration import Command, Option, Parameter

FORMATS = ("table", "plain", "json", "jsonl")
DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT_MS = 30_000


def _option(name: str, type_: type, flag: str, help: str, metavar: str | None = None, **rest: object) -> Parameter:  # noqa: A002
    option = Option(flag, help=help, metavar=metavar, **rest)  # type: ignore[arg-type]  # choices and complete
    return Parameter(name, option, type_, default=False if type_ is bool else None)


CLUSTER_OPTIONS = (
    _option("bootstrap_server", str, "--bootstrap-server",
            "Brokers to start from; also KCTL_BOOTSTRAP_SERVER.  Default: 127.0.0.1:9092.", "HOST:PORT[,...]"),
    _option("command_config", str, "--command-config",
            "Properties file with client settings, as Kafka's tools take it; also KCTL_COMMAND_CONFIG.", "FILE",
            complete="file"),
    _option("timeout", str, "--timeout",
            "How long the cluster may take to answer, such as 10s or 500ms.  Default: 30s, to connect at most 5s.",
            "DURATION"),
)  # fmt: skip

OUTPUT_OPTIONS = (
    _option("format", str, "--format", "How to show the result.  Default: table on a terminal, plain elsewhere.",
            choices=FORMATS),
    _option("header", bool, "--header", "Under plain, begin with a line of column titles."),
    _option("no_color", bool, "--no-color", "No colours; NO_COLOR and TERM=dumb do the same."),
    _option("quiet", bool, "--quiet", "No notes and no progress on stderr."),
    _option("debug", bool, "--debug", "Show where an error came from."),
)  # fmt: skip

GLOBAL_NAMES = tuple(parameter.name for parameter in CLUSTER_OPTIONS + OUTPUT_OPTIONS)


def all_parameters(command: Command) -> tuple[Parameter, ...]:
    """What `command` takes, its own parameters first; a flag of its own hides the common option of that name."""
    own = {flag for parameter in command.parameters for flag in flags_of(parameter)}
    common = (CLUSTER_OPTIONS if command.cluster else ()) + OUTPUT_OPTIONS
    return command.parameters + tuple(parameter for parameter in common if not own.intersection(flags_of(parameter)))


def flags_of(parameter: Parameter) -> tuple[str, ...]:
    """`-n`, `--max-records`; none for an argument."""
    return parameter.declared.names if isinstance(parameter.declared, Option) else ()


def global_flag_takes_value(flag: str) -> bool | None:
    """Whether the global option `flag` is followed by a value; None when it is no global option."""
    for parameter in CLUSTER_OPTIONS + OUTPUT_OPTIONS:
        if flag in flags_of(parameter):
            return not parameter.is_flag
    return None
