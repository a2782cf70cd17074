"""Commands and options of other Kafka tools, with kctl's in their place: "did you mean" for who comes from there.

The words are those of Kafka's scripts, kcat, kafkactl, kaf, kcl and rpk.  Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

COMMANDS = {
    "acl": "acls",
    "apis": "cluster describe",
    "broker-logger": "loggers",
    "brokers": "cluster describe",
    "config": "configs",
    "console-consumer": "consume",
    "console-producer": "produce",
    "consumer": "consume",
    "consumer-group": "groups",
    "consumer-groups": "groups",
    "consumer-offset": "groups",
    "delegation-token": "tokens",
    "delegation-tokens": "tokens",
    "delete-records": "records delete",
    "dump-log-segments": "dump-log",
    "elect-leaders": "elect",
    "get-offsets": "offsets get",
    "group": "groups",
    "groups-lag": "groups lag",
    "health": "cluster health",
    "info": "cluster describe",
    "lag": "groups lag",
    "leader-election": "elect",
    "log-dirs": "cluster log-dirs",
    "logdirs": "cluster log-dirs",
    "logger": "loggers",
    "metadata": "cluster describe",
    "node": "cluster describe",
    "nodes": "cluster describe",
    "offset": "offsets get",
    "partition": "topics describe",
    "partitions": "topics describe",
    "preferred-replica-election": "elect",
    "producer": "produce",
    "quota": "quotas",
    "reassign-partitions": "reassign",
    "record": "records",
    "scram": "users",
    "security": "acls",
    "seek": "groups reset-offsets",
    "server-start": "broker start",
    "server-stop": "broker stop",
    "token": "tokens",
    "topic": "topics",
    "transaction": "transactions",
    "trim-prefix": "records delete",
    "txn": "transactions",
    "user": "users",
    "zookeeper-server-start": "zookeeper start",
    "zookeeper-shell": "zookeeper",
}
"""First words, without the `kafka-` and `.sh` of Kafka's scripts."""

VERBS_FIRST = {
    "add": "create",
    "alter": "alter",
    "clone": "create",
    "create": "create",
    "delete": "delete",
    "describe": "describe",
    "get": "list",
    "list": "list",
    "remove": "delete",
    "reset": "reset-offsets",
    "set": "alter",
}
"""The first words of `kafkactl get topics` and `kafkactl describe topic`, with the usual verb here."""

VERBS = {
    "add": ("create", "set"),
    "cat": ("describe",),
    "create": ("add",),
    "del": ("delete", "remove"),
    "delete": ("remove",),
    "describe": ("list", "get", "show"),
    "edit": ("alter", "set"),
    "clone": ("create",),
    "get": ("list", "describe", "show"),
    "info": ("describe",),
    "inspect": ("describe",),
    "list": ("describe", "get", "show"),
    "logdirs": ("log-dirs",),
    "ls": ("list", "describe", "get", "show"),
    "metadata": ("describe",),
    "new": ("create",),
    "remove": ("delete",),
    "reset": ("reset-offsets",),
    "rm": ("delete", "remove"),
    "seek": ("reset-offsets",),
    "set": ("alter",),
    "show": ("describe", "list", "get"),
    "status": ("describe",),
    "update": ("alter",),
}
"""Verbs that are the first one of these that the noun has."""

VERBS_OF = {
    ("topics", "add-partitions"): "topics alter --partitions",
    ("topics", "alter-config"): "configs alter topic",
    ("topics", "describe-storage"): "cluster log-dirs",
    ("topics", "consume"): "consume",
    ("topics", "produce"): "produce",
    ("topics", "read"): "consume",
    ("topics", "trim-prefix"): "records delete",
    ("topics", "lag"): "groups lag",
    ("groups", "check"): "groups lag --check",
    ("groups", "commit"): "groups reset-offsets",
    ("groups", "offset-delete"): "groups delete-offsets",
    ("groups", "offsets"): "groups describe",
    ("groups", "peek"): "consume",
    ("broker", "describe"): "cluster describe",
    ("broker", "list"): "cluster describe",
    ("cluster", "brokers"): "cluster describe",
    ("cluster", "partitions"): "topics describe",
    ("cluster", "txn"): "transactions",
    ("cluster", "quotas"): "quotas",
    ("cluster", "config"): "configs",
    ("cluster", "elect-leaders"): "elect",
    ("acls", "delete"): "acls remove",
    ("acls", "create"): "acls add",
    ("acls", "user"): "users",
    ("acls", "acl"): "acls",
    ("reassign", "alter"): "reassign execute",
    ("reassign", "start"): "reassign execute",
    ("reassign", "throttle"): "reassign execute --throttle",
}

COMMAND_OF_OPTION = {
    "--alter": "alter",
    "--cancel": "cancel",
    "--create": "create",
    "--delete": "delete",
    "--delete-offsets": "delete-offsets",
    "--describe": "describe",
    "--execute": "execute",
    "--list": "list",
    "--members": "members",
    "--reset-offsets": "reset-offsets",
    "--verify": "verify",
}
"""Options of Kafka's scripts that are verbs here."""

ROOT_OPTIONS = {
    "--alter": "topics alter",
    "--create": "topics create",
    "--delete": "topics delete",
    "--describe": "topics describe",
    "--group": "groups describe GROUP",
    "--list": "topics list",
    "--topic": "topics describe TOPIC",
    "-C": "consume",
    "-G": "consume TOPIC --group GROUP",
    "-L": "cluster describe",
    "-P": "produce",
    "-Q": "offsets get",
    "-V": "--version",
    "-t": "topics describe TOPIC",
}
"""Options in front of a command."""

OPTIONS = {
    "--all-groups": "--all",
    "--at-min-isr-partitions": "--at-min-isr",
    "--bootstrap": "--bootstrap-server",
    "--bootstrap-servers": "--bootstrap-server",
    "--broker": "--bootstrap-server",
    "--broker-ids": "--broker",
    "--broker-list": "--bootstrap-server",
    "--brokers": "--bootstrap-server",
    "--command.config": "--command-config",
    "--consumer.config": "--command-config",
    "--consumer-property": "--command-config",
    "--dry": "--dry-run",
    "--force": "--yes",
    "--from-beginning": "--from start",
    "--json": "--format json",
    "--interval": "--watch",
    "--max-messages": "--max-records",
    "--new-consumer": "leave it out",
    "--no-confirm": "--yes",
    "--no-headers": "--format plain",
    "--num": "--max-records",
    "--offset": "--from",
    "--offsets": "--from",
    "--output": "--format",
    "--producer-property": "--command-config",
    "--producer.config": "--command-config",
    "--regex": "--topic-regex",
    "--replicas": "--replication-factor",
    "--skip-confirm": "--yes",
    "--tail": "--from -N",
    "--topic-id": "--id",
    "--topics-with-overrides": "--overrides",
    "--unavailable-partitions": "--unavailable",
    "--under-min-isr-partitions": "--under-min-isr",
    "--under-replicated-partitions": "--under-replicated",
    "--validate-only": "--dry-run",
    "--zookeeper": "--bootstrap-server, the address of a broker",
    "-J": "--format json",
    "-X": "--command-config",
    "-c": "--max-records",
    "-e": "--until end",
    "-o": "--from",
    "-p": "--partition",
    "-r": "--topic-regex",
}
"""Options of any command; a command has a better one where the text is one of its options."""

CONFIGS_OPTIONS = {
    "--add-config": "--set",
    "--add-config-file": "--set",
    "--broker": "'broker ID' as arguments",
    "--broker-defaults": "'broker default' as arguments",
    "--broker-logger": "'logger ID' as arguments",
    "--client-defaults": "'client <default>' as arguments",
    "--delete-config": "--delete",
    "--entity-default": "'<default>' as NAME",
    "--entity-name": "NAME as an argument",
    "--entity-type": "the type as the first argument",
    "--group": "'group NAME' as arguments",
    "--ip": "'ip ADDRESS' as arguments",
    "--topic": "'topic NAME' as arguments",
    "--user": "'user NAME' as arguments",
    "--user-defaults": "'user <default>' as arguments",
}
ARGUMENT_OPTIONS = {
    "--files": "FILE",
    "--group": "GROUP",
    "--groups": "GROUP",
    "--topic": "TOPIC",
    "--topics": "TOPIC",
    "-g": "GROUP",
    "-t": "TOPIC",
}
"""Options of other tools whose value is an argument here, with its metavar."""


def command_meant(word: str, following: str, nouns: Collection[str]) -> str | None:
    """Return the command that is meant by an unknown first word and the word behind it; None if it resembles none."""
    if word in VERBS_FIRST and following:
        noun = COMMANDS.get(_bare(following), _bare(following)).partition(" ")[0]
        return f"{noun} {VERBS_FIRST[word]}" if noun in nouns else None
    found = COMMANDS.get(_bare(word), _bare(word))
    if found.partition(" ")[0] in nouns:
        return found
    close = difflib.get_close_matches(word, [*nouns, *COMMANDS], n=1)
    return COMMANDS.get(close[0], close[0]) if close else None


def verb_meant(noun: str, word: str, verbs: Collection[str]) -> str | None:
    """Return the command that is meant by an unknown verb of a noun; None if it resembles none."""
    if (noun, word) in VERBS_OF:
        return VERBS_OF[noun, word]
    known = [verb for verb in VERBS.get(word, ()) if verb in verbs] or difflib.get_close_matches(word, verbs, n=1)
    return f"{noun} {known[0]}" if known else None


def root_option_meant(flag: str) -> str | None:
    """Return the command or option that is meant by an option in front of all commands."""
    return ROOT_OPTIONS.get(flag) or OPTIONS.get(flag)


def noun_option_meant(noun: str, flag: str, verbs: Collection[str]) -> str | None:
    """Return the command that is meant by an option in front of the verb."""
    verb = COMMAND_OF_OPTION.get(flag)
    return f"{noun} {verb}" if verb in verbs else OPTIONS.get(flag)


def option_meant(
    command: str, flag: str, flags: Collection[str], arguments: Collection[str], verbs: Collection[str]
) -> str | None:
    """Return the option or argument that an unknown option of a command corresponds to, among its options, arguments
    (metavars) and sister verbs.
    """
    argument = ARGUMENT_OPTIONS.get(flag)
    if argument is not None and any(candidate.startswith(argument) for candidate in arguments):
        return f"{argument} as an argument"
    noun = command.partition(" ")[0]
    if noun == "configs" and flag in CONFIGS_OPTIONS:
        return CONFIGS_OPTIONS[flag]
    close = (
        [candidate for candidate in flags if candidate.startswith(f"{flag}-")]
        or [candidate for candidate in flags if candidate.endswith(flag[1:]) and flag.startswith("--")]
        or _spelled_alike(flag, flags)
    )
    verb = COMMAND_OF_OPTION.get(flag)
    if verb in verbs:
        return f"kctl {noun} {verb}"
    meant = OPTIONS.get(flag)
    if meant is not None and (not meant.startswith("-") or meant.partition(" ")[0].rstrip(",") in flags):
        return meant
    return close[0] if close else None


def _spelled_alike(flag: str, flags: Collection[str]) -> list[str]:
    """Return the option that resembles this one most, apart from dashes, which would make all short options alike."""
    names = {candidate.lstrip("-"): candidate for candidate in flags}
    return [names[name] for name in difflib.get_close_matches(flag.lstrip("-"), names, 1, 0.7)]


def _bare(word: str) -> str:
    return word.removeprefix("kafka-").removesuffix(".sh").removesuffix(".bat")
