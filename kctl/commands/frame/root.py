"""The root of the command line: all nouns, and the only call of typer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import typer
import typer.main

from kctl.commands.frame.command_line import read_line
from kctl.commands.frame.help.command_cache import FULL_HELP, Described
from kctl.commands.frame.help.peer_words import ANSWERS, similar_option
from kctl.commands.frame.help.text import WIDTH, examples, summary_of
from kctl.commands.frame.lazy_group import LazyGroup, Member, lazy_group, load
from kctl.commands.frame.options.parameters import (
    Parameter,
    change_options,
    cluster_options,
    completed_values,
    consent_options,
    flags_of,
    is_argument,
    is_flag,
    output_options,
    repeats,
)
from kctl.commands.frame.options.vocabulary import Argument, Option, Vocabulary, format_vocabulary
from kctl.errors import UsageError
from kctl.output.console import Console

WORK: dict[str, dict[str, Member]] = {
    "Look": {
        "doctor": Member("kctl.commands.doctor", "Diagnose a cluster: one page, with what to do first at its top."),
        "top": Member("kctl.commands.top.command", "Show the activity of a cluster on one screen."),
        "cluster": Member(
            "kctl.commands.cluster",
            "Describe a cluster and its controllers, check its health, restart it, add and remove brokers, run one.",
        ),
        "topics": Member("kctl.commands.topics", "List, describe, create, alter and delete topics; look up offsets."),
        "groups": Member(
            "kctl.commands.groups", "Describe consumer groups and their lag, delete them, reset their offsets."
        ),
        "transactions": Member(
            "kctl.commands.transactions",
            "Describe transactions and producers, find hanging transactions, abort and terminate them.",
        ),
        "metrics": Member("kctl.commands.metrics", "Show the metrics of a broker, or serve those of a cluster."),
    },
    "Records": {
        "consume": Member("kctl.commands.consume.command", "Read records of topics."),
        "produce": Member("kctl.commands.produce.command", "Write lines from standard input to a topic."),
        "copy": Member(
            "kctl.commands.copy.command", "Copy records of topics to other topics, which may be in another cluster."
        ),
        "records": Member("kctl.commands.records", "Delete the oldest records of partitions."),
        "registry": Member(
            "kctl.commands.registry",
            "List, describe, check, register and delete schemas of a schema registry; serve one.",
        ),
        "perf": Member("kctl.commands.perf", "Measure throughput and latency with test records."),
    },
    "Change": {
        "configs": Member(
            "kctl.commands.configs", "Describe, change and compare properties of topics, brokers, groups and clients."
        ),
        "plan": Member(
            "kctl.commands.plan", "Show how a cluster differs from a YAML document, or write such a document."
        ),
        "apply": Member("kctl.commands.apply", "Change a cluster so that it has what a YAML document requires."),
        "features": Member("kctl.commands.features", "Describe, upgrade and downgrade the features of a cluster."),
        "loggers": Member("kctl.commands.loggers", "List, set and reset the log levels of brokers."),
    },
    "Security": {
        "acls": Member(
            "kctl.commands.acls", "List, change, check, export and apply access control lists; who may do what."
        ),
        "users": Member("kctl.commands.users", "List, create, alter and delete SCRAM users."),
        "quotas": Member("kctl.commands.quotas", "Describe and change client quotas, show which one applies."),
        "tokens": Member("kctl.commands.tokens", "Create, describe, renew and expire delegation tokens."),
        "tls": Member("kctl.commands.tls", "Check the TLS listeners of brokers."),
    },
    "Move": {
        "reassign": Member("kctl.commands.reassign", "Move partitions to other brokers."),
        "elect": Member("kctl.commands.elect", "Elect leaders of partitions."),
        "migrate": Member(
            "kctl.commands.migrate",
            "Move from ZooKeeper to KRaft and back: convert a stopped cluster, or copy a running one.",
        ),
    },
    "Offline files": {
        "dump-log": Member(
            "kctl.commands.dump_log.command", "Show the contents of log and index files, and errors in them."
        ),
    },
    "Run a broker": {
        "broker": Member("kctl.commands.broker", "Start, stop, check and examine a broker; the same for ZooKeeper."),
    },
    "Tables": {
        "export": Member(
            "kctl.commands.export.command",
            "Export topics to Parquet files or to Iceberg or Delta tables, each record exactly once.",
        ),
        "tables": Member(
            "kctl.commands.tables",
            "Compare exports with their topics, show how far they lag, import and maintain them; profile topics.",
        ),
    },
    "This tool": {
        "profile": Member("kctl.commands.profile", "Store how to connect to clusters, and what is allowed there."),
        "mcp": Member(
            "kctl.commands.mcp.command",
            "Serve the commands as tools for agents, by the Model Context Protocol on standard input and output.",
        ),
        "completion": Member("kctl.commands.completion.command", "Print a completion script for bash, zsh or fish."),
    },
}
"""Nouns by the work that they are for: noun -> module of its typer app and its line in help, which a test compares
with the help of the app."""
NOUNS: dict[str, Member] = {noun: member for nouns in WORK.values() for noun, member in nouns.items()}

app = typer.Typer(
    name="kctl",
    cls=lazy_group(NOUNS, "command", WORK),
    help="Manage Apache-Kafka-compatible clusters, and run a broker.\n\n"
    "Common options may stand anywhere in the line.  'kctl --version' prints the version.  Words of Kafka's tools,"
    " kcat, rpk, kcl and kafkactl are read too, and what they mean is said on stderr.",
    epilog=examples(
        "kctl broker start",
        "kctl topics create orders --partitions 6",
        "echo hello | kctl produce orders",
        "kctl consume orders --from start --until end",
    ),
    subcommand_metavar="NOUN [VERB] [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status.  Raises UsageError if it is invalid."""
    reading = read_line(arguments, NOUNS)
    if reading.is_changed and "--quiet" not in reading.words:
        Console.standard().note(f"kctl: read as: {reading.line()}")
    return run_command(typer.main.get_group(app), "kctl", reading.words)


def run_command(command: Any, name: str, arguments: Sequence[str]) -> int:
    """Run one click command under that name and return its exit status.  Raises UsageError for invalid `arguments`.

    `command.main` is not used, because it ends the process on a broken pipe and reads variables for typer's own
    completion.
    """
    try:
        with command.make_context(name, list(arguments), **CONTEXT) as ctx:
            return int(command.invoke(ctx) or 0)
    except typer.Exit as end:
        return end.exit_code
    except Exception as error:
        context = getattr(error, "ctx", None)
        # The module of these classes depends on the version of typer.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            message = _message(error) + _flag_with_value(error, arguments)
            path = context.command_path if context else "kctl"
            raise UsageError(f"{message}  Try '{path} --help'.") from None
        raise


CONTEXT: dict[str, Any] = {"terminal_width": WIDTH, "help_option_names": ["--help", "-h"]}
"""Settings of every click context, which the contexts of nouns and verbs inherit."""


def _message(error: Any) -> str:
    """Return the error text, which does not depend on the version of typer."""
    if hasattr(error, "option_name") and type(error).__name__ == "NoSuchOption":
        if answer := ANSWERS.get(error.option_name):
            return f"no such option: {error.option_name}.  {answer}."
        meant = _option_meant(error.option_name, error.ctx)
        if meant:
            return f"no such option: {error.option_name}.  Did you mean {meant}?"
        may_be_name = not error.option_name.startswith("--") and any(map(is_argument, error.ctx.command.params))
        hint = "  A name that begins with - is given after --." if may_be_name else ""
        return f"no such option: {error.option_name}.{hint}"
    message = " ".join(str(error.format_message()).split()).removesuffix(".") + "."
    return message[:1].lower() + message[1:]


def _flag_with_value(error: Any, arguments: Sequence[str]) -> str:
    """Return the end of the text of an error about an extra argument that follows an option without a value."""
    extra = re.search(r"unexpected extra arguments?(?:\(s\))? \((\S+)[ )]", error.format_message())
    if extra is None or error.ctx is None:
        return ""
    flags = [flag for param in error.ctx.command.params for flag in flags_of(param)]
    for flag, following in pairwise(arguments):
        meant = [
            candidate
            for candidate in flags
            if flag.startswith("--") and candidate.endswith(flag[1:]) and candidate != flag
        ]
        if following == extra[1].rstrip(")") and meant:
            return f"  {flag} takes no value; did you mean {meant[0]}?"
    return ""


def _option_meant(flag: str, context: Any) -> str | None:
    """Return the option or command that an unknown option of the command of a click context corresponds to."""
    group = context.parent.command if context.parent is not None else None
    verbs = list(getattr(group, "members", ()))
    flags = [known for param in context.command.params for known in flags_of(param)]
    meant = similar_option(flag, flags, verbs)
    return f"kctl {context.parent.info_name} {meant}" if meant in verbs else meant


@cache
def all_commands() -> dict[str, dict[str, Any]]:
    """Return all commands by noun and verb; a noun that is a verb has one command of its own name.

    The first call imports every module, which takes half a second.
    """
    found: dict[str, dict[str, Any]] = {}
    for noun, member in NOUNS.items():
        loaded = load(member)
        members = loaded.members if isinstance(loaded, LazyGroup) else {noun: member}
        found[noun] = {verb: load(load_command) for verb, load_command in members.items()}
    return found


def describe(name: str) -> Described | None:
    """Return what help and completion know of a command, a noun or, with an empty name, the program; None if there is
    none.
    """
    noun, _, verb = name.partition(" ")
    if not name:
        members = tuple((word, str(member.summary)) for word, member in NOUNS.items())
        leading = [*cluster_options(), *change_options(), *consent_options(), *output_options()]
        version = Option(("--version",), None, "Print the version.")
        everything = Option(("--all",), None, "With --help: all commands, common options and exit statuses.")
        vocabulary = Vocabulary(members, (*map(_option, leading), version, everything))
        return Described(format_vocabulary(vocabulary), help_text("", typer.main.get_group(app)))
    if name == FULL_HELP:
        return Described("", help_text("", typer.main.get_group(app), is_full=True))
    if noun not in NOUNS:
        return None
    command = load(NOUNS[noun])
    if isinstance(command, LazyGroup):
        if verb:
            if verb not in command.members:
                return None
            command = load(command.members[verb])
        else:
            members = tuple((word, summary_of(load(member))) for word, member in command.members.items())
            return Described(format_vocabulary(Vocabulary(members)), help_text(name, command))
    elif verb:
        return None
    options = tuple(_option(param) for param in command.params if not is_argument(param))
    arguments = tuple(
        Argument(completed_values(param), repeats(param)) for param in command.params if is_argument(param)
    )
    return Described(format_vocabulary(Vocabulary((), options, arguments)), help_text(name, command))


def _option(param: Parameter) -> Option:
    return Option(flags_of(param), None if is_flag(param) else completed_values(param), str(param.help))


def help_text(name: str, command: Any, *, is_full: bool = False) -> str:
    """Return the help of a command, a noun or, with an empty name, the program: its first page, or all of it."""
    root = typer.main.get_group(app).make_context("kctl", ["--help"], resilient_parsing=True, **CONTEXT)
    if name:
        parent, _, verb = f"kctl {name}".rpartition(" ")
        root.info_name = parent
        ctx = command.make_context(verb, ["--help"], parent=root, resilient_parsing=True)
    else:
        ctx = root
    ctx.meta[FULL_HELP] = is_full
    formatter = ctx.make_formatter()
    command.format_help(ctx, formatter)
    return str(formatter.getvalue())
