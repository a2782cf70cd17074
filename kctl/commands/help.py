"""Help text from declarations: examples first, exit statuses last, and no import that a terminal would feel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kctl.commands.declaration import Argument, Command, Group, Option, Parameter
from kctl.commands.exit_status import MEANINGS
from kctl.commands.options import CLUSTER_OPTIONS, OUTPUT_OPTIONS, all_parameters

WIDTH = 100
NAME_COLUMN_MAX = 34


def program_help(nouns: Mapping[str, str]) -> str:
    """`kctl --help`: the nouns, what is common to all, the exit statuses."""
    lines = [
        "Usage: kctl NOUN [VERB] [ARGUMENTS] [OPTIONS]",
        "",
        "Look after Apache-Kafka-compatible clusters, and run a broker.",
        "",
        "Examples:",
        "  kctl broker start                          a broker on 127.0.0.1:9092",
        "  kctl topics create orders --partitions 6",
        "  echo hello | kctl produce orders",
        "  kctl consume orders --from start --until end",
        "",
        "Commands:",
        *_table(nouns.items()),
        "",
        *_options("Cluster options (they may stand anywhere in the line):", CLUSTER_OPTIONS),
        *_options("Output options:", OUTPUT_OPTIONS),
        "Other options:",
        *_table([("--version", "Print the version."), ("--help", "Print this text, or that of a command.")]),
        "",
        *_exit_statuses(),
    ]
    return "\n".join(lines)


def group_help(group: Group) -> str:
    """`kctl NOUN --help`."""
    return "\n".join(
        [
            f"Usage: kctl {group.name} VERB [ARGUMENTS] [OPTIONS]",
            "",
            group.help,
            "",
            "Verbs:",
            *_table((command.name, command.summary) for command in group.commands.values()),
            "",
            f"'kctl {group.name} VERB --help' tells more.",
        ]
    )


def command_help(group: Group, command: Command) -> str:
    """`kctl NOUN VERB --help`."""
    arguments = [p for p in command.parameters if isinstance(p.declared, Argument)]
    own_options = [p for p in command.parameters if isinstance(p.declared, Option)]
    taken = all_parameters(command)
    lines = [f"Usage: {usage(group, command)}", "", command.summary, ""]
    if command.examples:
        lines += ["Examples:", *(f"  {example}" for example in command.examples), ""]
    if command.description:
        lines += [command.description, ""]
    lines += _options("Arguments:", arguments)
    lines += _options("Options:", own_options)
    if command.cluster:
        lines += _options("Cluster options:", [p for p in CLUSTER_OPTIONS if p in taken])
    lines += _options("Output options:", [p for p in OUTPUT_OPTIONS if p in taken])
    return "\n".join([*lines, *_exit_statuses()])


def usage(group: Group, command: Command) -> str:
    """The command line in one line."""
    words = ["kctl", group.name]
    if not group.is_verb:
        words.append(command.name)
    for parameter in command.parameters:
        if isinstance(parameter.declared, Argument):
            word = parameter.metavar + ("..." if parameter.repeats else "")
            words.append(word if parameter.required else f"[{word}]")
    return " ".join([*words, "[OPTIONS]"])


def option_column(parameter: Parameter) -> str:
    """`--partitions N`, `-n, --max-messages N`, or an argument's name."""
    if isinstance(parameter.declared, Argument):
        return parameter.metavar + ("..." if parameter.repeats else "")
    names = ", ".join(parameter.declared.names)
    return names if parameter.is_flag else f"{names} {parameter.metavar}"


def parameter_help(parameter: Parameter) -> str:
    """What the parameter means, whether it must be given or may be repeated."""
    text = parameter.declared.help
    if parameter.required and isinstance(parameter.declared, Option):
        text += "  Required."
    if parameter.repeats and isinstance(parameter.declared, Option):
        text += "  May be repeated."
    if not parameter.is_flag and parameter.default not in (None, "") and not parameter.repeats:
        text += f"  Default: {parameter.default}."
    return text


def _options(title: str, parameters: Sequence[Parameter]) -> list[str]:
    if not parameters:
        return []
    return [title, *_table((option_column(parameter), parameter_help(parameter)) for parameter in parameters), ""]


def _exit_statuses() -> list[str]:
    return ["Exit status:", *_table((str(int(status)), meaning) for status, meaning in MEANINGS.items())]


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    pairs = list(rows)
    width = min(max((len(name) for name, _ in pairs), default=0), NAME_COLUMN_MAX)
    lines = []
    for name, text in pairs:
        first, *more = _wrap(text, WIDTH - width - 4) or [""]
        if len(name) > width:
            lines.append(f"  {name}")
            name = ""  # noqa: PLW2901 - the text goes below a name that is too long for its column
        lines.append(f"  {name.ljust(width)}  {first}".rstrip())
        lines.extend(" " * (width + 4) + line for line in more)
    return lines


def _wrap(text: str, width: int) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line.rstrip())
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line.rstrip()] if line else lines
