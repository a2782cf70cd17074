"""Words of other tools lead to kctl's commands, which exist."""

from __future__ import annotations

from kctl.commands.frame.help import peer_words
from kctl.commands.frame.lazy_group import LazyGroup, load
from kctl.commands.frame.options.parameters import flags_of
from kctl.commands.frame.root import NOUNS, all_commands
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl


@for_rows(
    "line, meant",
    [
        ("consumer-groups --list", "kctl groups"),
        ("kafka-consumer-groups.sh --list", "kctl groups"),
        ("kafka-topics.sh --list", "kctl topics"),
        ("topic list", "kctl topics"),
        ("tpoics list", "kctl topics"),
        ("get topics", "kctl topics list"),
        ("describe topic orders", "kctl topics describe"),
        ("delete consumer-group billing", "kctl groups delete"),
        ("describe broker 1", "kctl broker"),
        ("console-consumer --topic orders", "kctl consume"),
        ("reassign-partitions", "kctl reassign"),
        ("-L", "kctl cluster describe"),
        ("-C -t orders", "kctl consume"),
        ("--topic orders", "kctl topics describe TOPIC"),
        ("--list", "kctl topics list"),
        ("--zookeeper localhost:2181 topics list", "--bootstrap-server, the address of a broker"),
        ("--bootstrap-servers x topics list", "--bootstrap-server"),
        ("--brokers x topics list", "--bootstrap-server"),
        ("topics ls", "kctl topics list"),
        ("topics rm orders", "kctl topics delete"),
        ("topics add-partitions orders", "kctl topics alter --partitions"),
        ("topics trim-prefix orders", "kctl records delete"),
        ("topics consume orders", "kctl consume"),
        ("groups seek billing", "kctl groups reset-offsets"),
        ("topics --list", "kctl topics list"),
        ("topics --describe --topic orders", "kctl topics describe"),
        ("groups --reset-offsets", "kctl groups reset-offsets"),
        ("topics describe --topic orders", "TOPIC as an argument"),
        ("topics describe -t orders", "TOPIC as an argument"),
        ("groups describe --group billing", "GROUP as an argument"),
        ("topics describe --under-replicated-partitions", "--under-replicated"),
        ("topics list --topics-with-overrides", "--overrides"),
        ("topics list --bootstrap-servers x", "--bootstrap-server"),
        ("topics list --zookeeper x", "--bootstrap-server, the address of a broker"),
        ("topics delete orders --force", "--yes"),
        ("topics list --json", "--format json"),
        ("topics list --output json", "--format"),
        ("topics list --describe", "kctl topics describe"),
        ("consume orders --from-beginning", "--from start"),
        ("consume orders --max-messages 3", "--max-records"),
        ("consume orders -e", "--until end"),
        ("consume orders -o beginning", "--from"),
        ("configs alter topic orders --add-config a=b", "--set"),
        ("configs describe --entity-type topics", "the type as the first argument"),
        ("configs describe --topic orders", "'topic NAME' as arguments"),
        ("configs alter --broker 1", "'broker ID' as arguments"),
        ("topics create orders --partition 3", "--partitions"),
        ("topics list --interval 5s", "--watch"),
        ("topics create orders --factor 3", "--replication-factor"),
        ("records delete --file offsets.json", "--offset-json-file"),
    ],
)
def test_word_of_another_tool_leads_to_the_command(kctl: Kctl, line: str, meant: str) -> None:
    ran = kctl(line)
    assert (ran.status, ran.out) == (2, "")
    assert f".  Did you mean {meant}?" in ran.err
    assert ran.err.count("\n") == 1


def test_option_without_a_value_that_is_given_one_leads_to_the_option_with_one(kctl: Kctl) -> None:
    ran = kctl("consume orders --header source=web --limit 1")
    assert ran.err.startswith("kctl: got unexpected extra argument(s) (source=web).  --header takes no value; did you ")
    assert "did you mean --record-header?  Try 'kctl consume --help'." in ran.err
    assert "takes no value" not in kctl("consume orders more --limit 1").err


def test_word_that_resembles_nothing_has_no_suggestion(kctl: Kctl) -> None:
    options = ("topics list --xyzzy", "quotas alter --set producer_byte_rate=5")
    for line in ("xyzzy", "--xyzzy", "topics xyzzy", "topics --xyzzy", *options):
        assert "Did you mean" not in kctl(line).err


def test_every_command_in_the_tables_exists() -> None:
    commands = all_commands()
    meant = [
        *peer_words.COMMANDS.values(),
        *peer_words.VERBS_OF.values(),
        *(text for text in peer_words.ROOT_OPTIONS.values() if not text.startswith("-")),
    ]
    for text in meant:
        noun, _, rest = text.partition(" ")
        verb = rest.split(" ", 1)[0]
        assert noun in NOUNS, text
        if (
            isinstance(load(NOUNS[noun]), LazyGroup)
            and verb
            and not verb.startswith("-")
            and text != "configs alter topic"
        ):
            assert verb in commands[noun], text


def test_no_word_of_another_tool_is_a_command() -> None:
    assert not set(peer_words.COMMANDS) & set(NOUNS)
    assert not {(noun, verb) for noun, verbs in all_commands().items() for verb in verbs} & set(peer_words.VERBS_OF)


def test_every_option_in_the_tables_exists() -> None:
    flags = {
        flag
        for verbs in all_commands().values()
        for command in verbs.values()
        for param in command.params
        for flag in flags_of(param)
    }
    for text in [*peer_words.OPTIONS.values(), *peer_words.CONFIGS_OPTIONS.values()]:
        if text.startswith("-"):
            assert text.partition(" ")[0].rstrip(",") in flags, text


def test_usual_words_for_showing_lead_to_the_verb_that_shows(kctl: Kctl) -> None:
    for noun, verbs in all_commands().items():
        if not {"list", "describe", "get", "show"} & verbs.keys():
            continue
        for word in {"list", "ls", "describe", "show", "get"} - verbs.keys():
            assert "Did you mean kctl" in kctl(f"{noun} {word}").err, (noun, word)
