"""The tools: which commands they are, and their input as JSON Schema, from the parameters of the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kctl.commands.help import summary_of
from kctl.commands.lazy_group import LazyGroup, load
from kctl.commands.mcp.roots import Roots
from kctl.commands.parameters import (
    Parameter,
    choices_of,
    completes,
    help_of,
    is_argument,
    is_flag,
    metavar_of,
    name_of,
    number_range,
    repeats,
)
from kctl.commands.root import NOUNS
from kctl.errors import UsageError

CONFIRMATION = "confirmation"
RECORDS_MAX = 1_000
RECORDS_DEFAULT = 100
_TEXT_CHARACTERS_MAX = 10_000
_LIST_ITEMS_MAX = 1_000

READING = (
    *("topics list", "topics describe", "consume", "offsets get", "producers describe"),
    *("groups list", "groups describe", "groups lag", "groups members", "groups history"),
    *("transactions list", "transactions describe", "transactions find-hanging"),
    *("cluster describe", "cluster health", "cluster log-dirs", "reassign list", "reassign plan"),
    "reassign plan-disks",
    *("configs describe", "acls list", "acls check", "acls export", "quotas describe", "quotas check"),
    *("loggers list", "users list", "api-versions", "features describe", "metadata-quorum describe"),
    "tables status",
)
"""Commands that change nothing."""
ADDING = (
    "topics create",
    "topics alter",
    "configs alter",
    "acls add",
    "quotas alter",
    "loggers set",
    "loggers reset",
    "elect",
    "features upgrade",
)
"""Commands that change the cluster, but delete neither data nor positions."""
DELETING = (
    *("topics delete", "records delete", "groups delete", "groups delete-offsets", "groups reset-offsets"),
    *("groups restore", "acls remove", "transactions abort", "streams reset", "features downgrade"),
)

NOT_OFFERED = {
    "it reads standard input": ("produce",),
    "it connects to a second cluster": ("copy", "configs diff"),
    "it reads or writes files of this machine": (
        *("groups export", "groups import", "acls apply", "dump-log", "export", "spark export", "spark warmup"),
        *("tables import", "tables compact"),
        *("reassign execute", "reassign status", "reassign verify", "reassign cancel", "cluster maintenance"),
        *("plan", "apply"),
        *("profile add", "profile list", "profile remove", "profile rename", "profile show", "profile use"),
    ),
    "it runs until it is stopped": ("top", "metrics serve"),
    "it may load the cluster heavily": (
        "perf consume",
        "perf latency",
        "perf produce",
        "verify replicas",
        "tables profile",
        "tables verify",
    ),
    "it starts, stops or examines processes of this machine": (
        *("broker start", "broker stop", "broker status", "broker check", "broker bundle", "zookeeper start"),
        *("cluster start", "cluster stop", "cluster status", "cluster roll"),
    ),
    "it connects to an address that is an argument": (
        *("tls check", "metrics show", "zookeeper ls", "zookeeper get", "zookeeper stat"),
    ),
    "it handles passwords or tokens": (
        *("users create", "users alter", "users delete"),
        *("tokens create", "tokens describe", "tokens renew", "tokens expire"),
    ),
    "it is for shells": ("completion", "mcp"),
}
"""Why the other commands are not tools."""

_EXCLUDED = frozenset(
    {
        *("compat", "watch", "interval", "rounds", "wait", "export"),
        *("yes", "dry_run", "execute"),
        *("zookeeper", "schema_registry", "decode", "catalog"),
    }
)
"""Parameters that tools do not have: output of other programs, repetition, confirmation, addresses, and a catalogue,
whose configuration may name any address."""
_TARGET = "TARGET"
"""The placeholder of folders and URLs of exports."""
_EXCLUDED_OF_CONSUME = frozenset(
    {
        *("follow", "group", "assignor"),
        *("record_format", "null_marker", "reversible", "value_only"),
    }
)
"""A group commits offsets; the others have output that is not JSON."""


class Tool(NamedTuple):
    """A command as a tool."""

    name: str
    """`topics_list`."""
    words: tuple[str, ...]
    """`topics list`."""
    summary: str
    description: str
    parameters: Mapping[str, Parameter]
    """The parameters that a call may have, by their names in its arguments."""
    changes: bool
    deletes: bool
    confirming: str
    """The option that makes the change; empty if leaving out --dry-run does."""

    @property
    def schema(self) -> dict[str, Any]:
        """The arguments of a call, as JSON Schema."""
        properties = {name: _schema(param) for name, param in self.parameters.items()}
        if self.name == "consume":
            properties["max_records"] |= {"maximum": RECORDS_MAX, "default": RECORDS_DEFAULT}
        if self.changes:
            text = (
                "The confirmation that the dry run with the same arguments returned; without it, the call is a dry run."
            )
            properties[CONFIRMATION] = {"type": "string", "description": text}
        required = [name for name, param in self.parameters.items() if param.required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    @property
    def needs_root(self) -> bool:
        """Whether an argument is a folder or URL, which must be in a root."""
        return any(_is_target(param) for param in self.parameters.values())

    def command_line(self, arguments: Mapping[str, object], roots: Roots | None = None) -> list[str]:
        """The words of the command.

        Raises UsageError for arguments that are not in the schema, and for targets that are not in the `roots`.
        """
        unknown = sorted(arguments.keys() - self.parameters.keys())
        if unknown:
            raise UsageError(f"{self.name} has no argument {unknown[0][:100]}; it has {', '.join(self.parameters)}")
        given = {"max_records": RECORDS_DEFAULT, **arguments} if self.name == "consume" else arguments
        options: list[str] = []
        positional: list[str] = []
        for name, param in self.parameters.items():
            value = given.get(name)
            if value is None:
                if param.required:
                    raise UsageError(f"{self.name} requires the argument {name}")
                continue
            if self.name == "consume" and name == "max_records":
                value = _checked_count(value)
            if is_flag(param):
                options += [name_of(param)] if _checked_flag(name, value) else []
                continue
            texts = _texts(name, param, value)
            if _is_target(param):
                texts = [(roots or Roots()).checked(text) for text in texts]
            if is_argument(param):
                positional += texts
            else:
                options += [f"{name_of(param)}={text}" for text in texts]
        return [*self.words, *options, *(["--", *positional] if positional else [])]


def tools(*, allow_writes: bool, has_roots: bool = True) -> dict[str, Tool]:
    """The tools by name; without roots, those that need none."""
    names = READING + (ADDING + DELETING if allow_writes else ())
    return {tool.name: tool for tool in map(_tool, names) if has_roots or not tool.needs_root}


def _is_target(param: Parameter) -> bool:
    return metavar_of(param) == _TARGET


def _tool(name: str) -> Tool:
    words = tuple(name.split())
    command = _command(words)
    excluded = _EXCLUDED | (_EXCLUDED_OF_CONSUME if name == "consume" else frozenset())
    flags = {str(param.name): name_of(param) for param in command.own_params}
    changes = name not in READING
    assert not changes or "dry_run" in flags
    return Tool(
        "_".join(words).replace("-", "_"),
        words,
        summary_of(command),
        str(command.help or ""),
        {
            str(param.name).rstrip("_"): param
            for param in command.own_params
            if str(param.name) not in excluded and not completes(param)
        },
        changes,
        name in DELETING,
        flags.get("execute") or flags.get("yes") or "",
    )


def _command(words: Sequence[str]) -> Any:
    loaded = load(NOUNS[words[0]])
    return load(loaded.members[words[1]]) if isinstance(loaded, LazyGroup) else loaded


def _schema(param: Parameter) -> dict[str, Any]:
    one: dict[str, Any]
    if is_flag(param):
        one = {"type": "boolean"}
    elif bounds := number_range(param):
        one = {"type": "integer", "minimum": bounds[0], "maximum": bounds[1]}
    else:
        one = {"type": "string", "maxLength": _TEXT_CHARACTERS_MAX}
        if choices_of(param):
            one["enum"] = list(choices_of(param))
    if repeats(param):
        one = {"type": "array", "items": one, "maxItems": _LIST_ITEMS_MAX}
    return one | {"description": help_of(param)}


def _texts(name: str, param: Parameter, value: object) -> list[str]:
    if not repeats(param):
        return [_text(name, param, value)]
    if not isinstance(value, list) or len(value) > _LIST_ITEMS_MAX:
        raise UsageError(f"the argument {name} is a list of at most {_LIST_ITEMS_MAX:,} strings")
    return [_text(name, param, one) for one in value]


def _text(name: str, param: Parameter, value: object) -> str:
    if number_range(param):
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"the argument {name} is a whole number")
        return str(value)
    if not isinstance(value, str) or len(value) > _TEXT_CHARACTERS_MAX or "\0" in value:
        raise UsageError(f"the argument {name} is a string of at most {_TEXT_CHARACTERS_MAX:,} characters")
    return value


def _checked_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"the argument {name} is true or false")
    return value


def _checked_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= RECORDS_MAX:
        raise UsageError(f"the argument max_records is a whole number from 0 to {RECORDS_MAX:,}")
    return value
