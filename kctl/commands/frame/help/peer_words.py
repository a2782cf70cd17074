"""Commands and options as other tools, and earlier versions of kctl, name them, with the words of kctl in their place.

The words are those of Kafka's scripts, kcat, kafkactl, kaf, kcl and rpk.  What is unambiguous is done, and
`kctl.commands.frame.command_line` says once how it was read; the rest is answered with the words to type.  Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence

COMMANDS = {
    "acl": "acls",
    "alter topic-config": "configs alter topic",
    "api-versions": "cluster api-versions",
    "apis": "cluster api-versions",
    "broker-api-versions": "cluster api-versions",
    "broker-logger": "loggers",
    "brokers": "cluster describe",
    "client-metrics": "configs describe client-metrics",
    "cluster brokers": "cluster describe",
    "cluster cluster-id": "cluster describe",
    "cluster list-endpoints": "cluster describe",
    "cluster config": "configs",
    "cluster elect-leaders": "elect",
    "cluster logdirs": "cluster log-dirs",
    "cluster logdirs describe": "cluster log-dirs",
    "cluster partitions": "topics describe",
    "cluster partitions list": "topics describe",
    "cluster quotas": "quotas",
    "cluster txn": "transactions",
    "config": "configs",
    "config get-contexts": "profile list",
    "config use-context": "profile use",
    "console-consumer": "consume --follow --from end",
    "console-producer": "produce",
    "consumer": "consume",
    "consumer-group": "groups",
    "consumer-groups": "groups",
    "consumer-offset": "groups",
    "consumer-perf-test": "perf consume",
    "delegation-token": "tokens",
    "delegation-tokens": "tokens",
    "delete-records": "records delete",
    "dump-log-segments": "dump-log",
    "e2e-latency": "perf latency",
    "elect-leaders": "elect",
    "generate shell-completion": "completion",
    "get-offsets": "topics offsets",
    "group": "groups",
    "groups-lag": "groups lag",
    "health": "cluster health",
    "info": "cluster describe",
    "lag": "groups lag",
    "leader-election": "elect",
    "log-dirs": "cluster log-dirs",
    "log-dirs describe": "cluster log-dirs",
    "logdirs": "cluster log-dirs",
    "logdirs describe": "cluster log-dirs",
    "logger": "loggers",
    "metadata": "cluster describe",
    "metadata-quorum": "cluster quorum",
    "metadata-quorum describe": "cluster quorum",
    "misc api-versions": "cluster api-versions",
    "misc probe-version": "cluster api-versions",
    "node": "cluster describe",
    "node ls": "cluster describe",
    "nodes": "cluster describe",
    "offset": "topics offsets",
    "offsets": "topics offsets",
    "offsets get": "topics offsets",
    "partition": "topics describe",
    "partitions": "topics describe",
    "preferred-replica-election": "elect --preferred",
    "producer": "produce",
    "producer-perf-test": "perf produce",
    "producers": "transactions describe-producers",
    "producers describe": "transactions describe-producers",
    "profile create": "profile add",
    "quorum": "cluster quorum",
    "quota": "quotas",
    "reassign-partitions": "reassign",
    "record": "records",
    "replica-verification": "cluster verify",
    "scram": "users",
    "security acl": "acls",
    "security user": "users",
    "seek": "groups reset-offsets",
    "server-start": "broker start",
    "server-stop": "broker stop",
    "spark export": "export --engine spark",
    "spark warmup": "tables spark-warmup",
    "streams reset": "groups reset-streams",
    "streams-application-reset": "groups reset-streams",
    "token": "tokens",
    "topic": "topics",
    "transaction": "transactions",
    "trim-prefix": "records delete",
    "txn": "transactions",
    "user": "users",
    "verify": "cluster verify",
    "verify replicas": "cluster verify",
    "zookeeper get": "broker zookeeper-get",
    "zookeeper ls": "broker zookeeper-ls",
    "zookeeper start": "broker zookeeper-start",
    "zookeeper stat": "broker zookeeper-stat",
    "zookeeper-server-start": "broker zookeeper-start",
    "zookeeper-shell": "broker zookeeper-ls",
}
"""First words of a command line, without the `kafka-` and `.sh` of Kafka's scripts, and the words that they mean."""

COMMAND_WORDS_MAX = max(len(phrase.split()) for phrase in COMMANDS)

VERBS_FIRST = {
    "add": "create",
    "alter": "alter",
    "create": "create",
    "delete": "delete",
    "describe": "describe",
    "edit": "alter",
    "get": "list",
    "list": "list",
    "remove": "delete",
    "reset": "reset-offsets",
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
    ("topics", "add-partitions"): "topics alter",
    ("topics", "alter-config"): "configs alter topic",
    ("topics", "describe-storage"): "cluster log-dirs",
    ("topics", "consume"): "consume --follow",
    ("topics", "produce"): "produce",
    ("topics", "read"): "consume",
    ("topics", "trim-prefix"): "records delete",
    ("groups", "check"): "groups lag --check",
    ("groups", "offsets"): "groups describe",
    ("broker", "list"): "cluster describe",
    ("acls", "delete"): "acls remove",
    ("acls", "create"): "acls add",
    ("acls", "user"): "users",
    ("reassign", "alter"): "reassign execute",
    ("reassign", "start"): "reassign execute",
}
"""Verbs of other tools that are several words here."""

VERBS_ANSWERED = {
    ("broker", "describe"): "cluster describe",
    ("groups", "commit"): "groups reset-offsets GROUP --topic TOPIC --to-offset N",
    ("groups", "offset-delete"): "groups delete-offsets GROUP --topic TOPIC",
    ("groups", "peek"): "consume TOPIC --from N --max-messages N",
    ("reassign", "throttle"): "reassign execute --throttle BYTES_PER_S",
    ("topics", "lag"): "groups lag --topic TOPIC",
}
"""Verbs of other tools whose arguments differ, so that they are answered and not done."""

COMMAND_OF_OPTION = {
    "--add": "add",
    "--alter": "alter",
    "--cancel": "cancel",
    "--create": "create",
    "--delete": "delete",
    "--delete-offsets": "delete-offsets",
    "--describe": "describe",
    "--execute": "execute",
    "--expire": "expire",
    "--list": "list",
    "--members": "members",
    "--remove": "remove",
    "--renew": "renew",
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
    "-G": "consume TOPIC --group GROUP",
    "-t": "topics describe TOPIC",
}
"""Options in front of a command, whose command is only a guess."""

MODES = {
    "-C": "consume --follow",
    "-L": "cluster describe",
    "-P": "produce",
    "-Q": "topics offsets",
}
"""The modes of kcat, which are options anywhere before its arguments."""

OPTIONS: dict[str, str | tuple[str, ...]] = {
    "--add-config": "--set",
    "--set": "--override",
    "--all-groups": "--all",
    "--allow-principal": "--allow",
    "--bootstrap": "--bootstrap-server",
    "--bootstrap-servers": "--bootstrap-server",
    "--broker-id": "--broker",
    "--broker-ids": "--broker",
    "--broker-list": "--bootstrap-server",
    "--brokers": ("--broker", "--bootstrap-server"),
    "--codec": "--compression-codec",
    "--command.config": "--command-config",
    "--config": ("--set", "--command-config"),
    "--config-file": "--command-config",
    "--consumer-property": "--command-property",
    "--consumer.config": "--command-config",
    "--admin.config": "--command-config",
    "--delete": "--delete-config",
    "--deny-principal": "--deny",
    "--dry": "--dry-run",
    "--exclude-internal": "",
    "--exit": ("!--follow", "--until end"),
    "--force": "--yes",
    "--from-beginning": "--from start",
    "--from-latest": "--from end",
    "--group-type": "--type",
    "--id": "--topic-id",
    "--include": "--topic-regex",
    "--input-topics": "--input-topic",
    "--intermediate-topics": "--intermediate-topic",
    "--internal-topics": "--internal-topic",
    "--interval": "--watch",
    "--isolation": "--isolation-level",
    "--json": "--format json",
    "--key-value-separator": "--key-separator",
    "--limit": "--max-messages",
    "--max-records": "--max-messages",
    "--messages": ("--num-records", "--max-messages"),
    "--new-consumer": "",
    "--application-id": "APPLICATION",
    "--newest": "--to-latest",
    "--no-confirm": "--yes",
    "--no-headers": "--no-header",
    "--noconfirm": "--yes",
    "--num": "--max-messages",
    "--offset": "--from",
    "--offsets": "--from",
    "--oldest": "--to-earliest",
    "--output": "--format",
    "--owner-principal": "--owner",
    "--producer-property": "--command-property",
    "--producer-props": "--command-property",
    "--producer.config": "--command-config",
    "--property": "--set",
    "--rate": "--throughput",
    "--records": "--num-records",
    "--regex": "--topic-regex",
    "--renewer-principal": "--renewer",
    "--replicas": "--replication-factor",
    "--request-required-acks": "--acks",
    "--size": "--record-size",
    "--skip-confirm": "--yes",
    "--sync": "",
    "--tail": "--from -{}",
    "--transactional-id": "TRANSACTIONAL_ID",
    "--under-min-isr": "--under-min-isr-partitions",
    "--at-min-isr": "--at-min-isr-partitions",
    "--under-replicated": "--under-replicated-partitions",
    "--unavailable": "--unavailable-partitions",
    "--overrides": "--topics-with-overrides",
    "--user-principal": "--user",
    "--validate-only": "--dry-run",
    "--whitelist": "--topic-regex",
    "-G": "--group",
    "-J": "--format jsonl",
    "-K": "--key-separator",
    "-X": "--command-property",
    "-c": ("--max-messages", "--set"),
    "-e": ("!--follow", "--until end"),
    "-g": "GROUP",
    "-k": "--key",
    "-l": "--file",
    "-o": ("--format", "--from"),
    "-p": ("--partition", "--partitions"),
    "-q": "--quiet",
    "-r": ("--replication-factor", "--topic-regex"),
    "-u": "",
    "-z": "--compression-codec",
    "--topic": "TOPIC",
    "--topics": "TOPIC",
    "-t": "TOPIC",
    "--group": "GROUP",
    "--groups": "GROUP",
    "--files": "FILE",
    "--from-file": "FILE",
}
"""Options of any command that lacks them.  The first of several that the command has, and whose choices have the value.

`--x` is the option in its place; `--x TEXT` and an empty text are used instead of an option without a value, where {}
is its value if it has one; `!--x` takes an option back; a word in capitals is an argument that gets the value.
"""

OPTIONS_OF: dict[str, dict[str, str | tuple[str, ...]]] = {
    "acls add": {"--allow-host": "--host", "--deny-host": "--host", "--principal": "--allow"},
    "acls list": {"--principal": "--allow"},
    "acls remove": {"--allow-host": "--host", "--deny-host": "--host"},
    "cluster log-dirs": {"--broker-list": "--broker", "--describe": "", "--topic-list": "--topic"},
    "cluster quorum": {"--status": ""},
    "cluster verify": {"--topic-white-list": "--topic", "--topics-include": "--topic"},
    "configs alter": {
        "--broker": "TYPE=broker NAME", "--topic": "TYPE=topic NAME", "--group": "TYPE=group NAME",
        "--entity-type": "TYPE", "--entity-name": "NAME", "--entity-default": "NAME=<default>",
        "--delete": "--delete-config", "--broker-logger": "TYPE=logger NAME",
    },
    "configs describe": {
        "--broker": "TYPE=broker NAME", "--topic": "TYPE=topic NAME", "--group": "TYPE=group NAME",
        "--user": "TYPE=user NAME", "--ip": "TYPE=ip NAME", "--broker-logger": "TYPE=logger NAME",
        "--entity-type": "TYPE", "--entity-name": "NAME", "--entity-default": "NAME=<default>",
    },
    "elect": {"--all-topic-partitions": "", "--election-type": "--{}"},
    "groups import": {"--execute": "--yes"},
    "groups reset-streams": {"--execute": "--yes"},
    "groups restore": {"--execute": "--yes"},
    "groups list": {"--consumer": "--type consumer", "--share": "--type share", "--streams": "--type streams"},
    "groups describe": {
        "--members": "--show members", "--offsets": "--show offsets", "--state": "--show state",
    },
    "groups reset-offsets": {
        "--execute": "--yes", "--offset": "--to-offset",
    },
    "reassign plan": {"--broker-list": "--to-brokers"},
    "records delete": {"--offset": "--before-offset", "-o": "--before-offset"},
    "tokens create": {"--max-life-time-period": "--max-lifetime"},
    "tokens expire": {"--expiry-time-period": "--after"},
    "tokens renew": {"--renew-time-period": "--period"},
    "topics alter": {"-n": "--partitions", "--num": "--partitions", "-p": "--partitions"},
    "topics offsets": {"--partitions": "--partition"},
    "transactions find-hanging": {"--max-transaction-timeout": "--idle"},
}  # fmt: skip
"""Options of one command, before those of any."""

ANSWERS: dict[str, str] = {
    "--add-config-file": "Use --set NAME=VALUE for each property, or kctl apply FILE",
    "--bootstrap-controller": "Use --bootstrap-server: the command needs brokers, and controllers do not answer it",
    "--consumer-config": "Use --command-config FILE",
    "--formatter-config": r"Use --record-format FORMAT, such as '%k\t%v\n'",
    "--formatter-property": r"Use --record-format FORMAT, such as '%k\t%v\n' for print.key=true",
    "--hmac": "Use the id of the token as an argument",
    "--print-headers": r"Use --record-format '%h{%k=%v,}%v\n'",
    "--print-keys": r"Use --record-format '%k\t%v\n'",
    "--property": r"Use --record-format FORMAT, such as '%k\t%v\n' for print.key and parse.key, or --command-property",
    "--reader-config": "Use --key-separator TEXT or --record-format FORMAT",
    "--reader-property": "Use --key-separator TEXT, for parse.key and key.separator, or --record-format FORMAT",
    "--resource-pattern-type": "Use --prefix for prefixed names; 'kctl acls list' also has --literal and --match",
    "--timeout-ms": "Leave it out: kctl consume ends at the end of the topic, unless --follow is given",
    "--topics-to-move-json-file": "Use --topic TOPIC for each topic",
    "--value": "Use standard input: echo VALUE | kctl produce TOPIC",
    "--zookeeper": "Use --bootstrap-server, the address of a broker",
    "-D": "Use --record-format '%v;' with the delimiter in place of ;",
    "-f": "Use --follow, or --record-format FORMAT",
    "-s": r"Use --decode, or --record-format with a form of bytes such as '%v{big32}\n'",
}
"""Options of any command that lacks them, which are answered."""

NOT_CONSENT = frozenset({("groups reset-streams", "--force")})
"""Options of commands that mean something else than --yes there, such as the removal of active members."""

VALUES = {
    ("--from", "beginning"): "start",
    ("--from", "earliest"): "start",
    ("--from", "latest"): "end",
    ("--from", "newest"): "end",
    ("--from", "oldest"): "start",
    ("--format", "compact"): "plain",
    ("--format", "text"): "table",
    ("--format", "wide"): "table",
    ("--time", "-1"): "latest",
    ("--time", "-2"): "earliest",
    ("--time", "-3"): "max-timestamp",
    ("TYPE", "broker-loggers"): "logger",
    ("TYPE", "disable"): "off",
    ("TYPE", "enable"): "on",
    ("TYPE", "brokers"): "broker",
    ("TYPE", "clients"): "client",
    ("TYPE", "groups"): "group",
    ("TYPE", "ips"): "ip",
    ("TYPE", "topics"): "topic",
    ("TYPE", "users"): "user",
}
"""Values of options and arguments, which other tools name otherwise."""


def bare_word(word: str) -> str:
    """Return a first word without what the names of Kafka's scripts begin and end with."""
    return word.removeprefix("kafka-").removesuffix(".sh").removesuffix(".bat")


def command_words(words: Sequence[str], nouns: Collection[str]) -> tuple[list[str], int] | None:
    """Return the words that the first ones of a command line mean, and how many these are; None if they mean none."""
    bare = [bare_word(words[0]), *words[1:COMMAND_WORDS_MAX]]
    for count in range(len(bare), 0, -1):
        if meant := COMMANDS.get(" ".join(bare[:count])):
            return meant.split(), count
    if bare[0] in nouns and bare[0] != words[0]:
        return [bare[0]], 1
    if words[0] in VERBS_FIRST and len(words) > 1:
        noun = COMMANDS.get(bare_word(words[1]), bare_word(words[1]))
        if " " in noun and VERBS_FIRST[words[0]] in {"list", "describe"}:
            return noun.split(), 2
        if noun in nouns:
            return [noun, VERBS_FIRST[words[0]]], 2
    return None


def verb_words(noun: str, word: str, verbs: Collection[str]) -> list[str] | None:
    """Return the command that an unknown verb of a noun means exactly, None if there is none."""
    if (noun, word) in VERBS_OF:
        return VERBS_OF[noun, word].split()
    return next(([noun, verb] for verb in VERBS.get(word, ()) if verb in verbs), None)


def similar_command(word: str, nouns: Collection[str]) -> str | None:
    """Return the command that an unknown first word resembles, None if it resembles none."""
    close = difflib.get_close_matches(word, [*nouns, *COMMANDS], n=1)
    return COMMANDS.get(close[0], close[0]) if close else None


def similar_verb(noun: str, word: str, verbs: Collection[str]) -> str | None:
    """Return the command that an unknown verb of a noun resembles, None if it resembles none."""
    close = difflib.get_close_matches(word, verbs, n=1)
    return f"{noun} {close[0]}" if close else None


def option_texts(command: str, flag: str) -> tuple[str, ...]:
    """Return what an option that the command lacks may mean, in the order of preference."""
    if (command, flag) in NOT_CONSENT:
        return ()
    found: list[str] = []
    for table in (OPTIONS_OF.get(command, {}), OPTIONS):
        entry: str | tuple[str, ...] = table.get(flag, ())
        found += [entry] if isinstance(entry, str) else entry
    return tuple(found)


def similar_option(flag: str, flags: Collection[str], verbs: Collection[str]) -> str | None:
    """Return the option, or the other verb of the noun, that an unknown option corresponds to; None if to none."""
    if COMMAND_OF_OPTION.get(flag) in verbs:
        return COMMAND_OF_OPTION[flag]
    close = (
        [known for known in flags if known.startswith(f"{flag}-")]
        or [known for known in flags if known.endswith(flag[1:]) and flag.startswith("--")]
        or _spelled_alike(flag, flags)
    )
    return close[0] if close else None


def prefix_match(word: str, names: Collection[str]) -> list[str]:
    """Return the names that begin with a word of at least two letters."""
    return [name for name in names if len(word) > 1 and name.startswith(word)]


def value_meant(name: str, value: str) -> str:
    """Return the value of an option or argument in the words of kctl."""
    if name == "--from" and value.startswith("s@"):
        return value[1:]  # kcat's time of the first record.
    return VALUES.get((name, value), value)


def _spelled_alike(flag: str, flags: Collection[str]) -> list[str]:
    """Return the option that resembles this one most, apart from dashes, which would make all short options alike."""
    names: Mapping[str, str] = {known.lstrip("-"): known for known in flags}
    return [names[name] for name in difflib.get_close_matches(flag.lstrip("-"), names, 1, 0.7)]
