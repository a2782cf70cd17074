"""Words of other tools, shortened names and earlier names are read as commands of kctl, or answered."""

from __future__ import annotations

import shlex
from pathlib import Path

from kctl.commands.frame.command import ChangingCommand, LocalChange
from kctl.commands.frame.command_line import read_line
from kctl.commands.frame.help import peer_words
from kctl.commands.frame.lazy_group import LazyGroup, load
from kctl.commands.frame.options.parameters import flags_of
from kctl.commands.frame.root import CONTEXT, NOUNS, all_commands
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.conftest import Kctl

HABITS = Path(__file__).with_name("lines_of_habit.txt").read_text(encoding="utf-8").splitlines()
"""`LINE => LINE OF KCTL` or `LINE =! ANSWER`; those of Kafka's scripts, kcat, kcl, rpk, kafkactl, kaf and kctl."""
DONE = [tuple(line.split(" => ")) for line in HABITS if " => " in line]
ANSWERED = [tuple(line.split(" =! ")) for line in HABITS if " =! " in line]


@for_rows("line, meant", DONE)
def test_line_of_habit_is_done(line: str, meant: str) -> None:
    reading = read_line(shlex.split(line), NOUNS)
    assert (reading.line() if reading.is_changed else f"kctl {line}") == meant
    assert not read_line(reading.words, NOUNS).is_changed
    command, (name, *arguments) = load(NOUNS[reading.words[0]]), reading.words
    if isinstance(command, LazyGroup):
        command, (name, *arguments) = load(command.members[arguments[0]]), arguments
    command.make_context(name, arguments, **CONTEXT)  # Raises for a line that kctl refuses.


@for_rows("line, answer", ANSWERED)
def test_line_of_habit_is_answered(kctl: Kctl, line: str, answer: str) -> None:
    ran = kctl("", *shlex.split(line))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"{answer}" in ran.err


def test_list_of_habits_is_long_enough() -> None:
    assert len(DONE) + len(ANSWERED) >= 150


def test_reading_is_said_once_unless_quiet(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders")
    assert kctl("topic ls -o plain") == (0, "orders\t1\t1\t-\t-\n", "kctl: read as: kctl topics list --format plain\n")
    assert kctl("topic ls --quiet").err == kctl("topics list").err == ""
    shown = kctl("topic ls --consumer-property sasl.jaas.config=sesame").err
    assert "sasl.jaas.config=..." in shown
    assert "sesame" not in shown


def test_beginning_of_a_name_never_changes_anything() -> None:
    """Neither the beginning of a noun that is a command nor that of a verb."""
    for noun, verbs in all_commands().items():
        for verb, command in verbs.items():
            name = [noun] if noun == verb else [noun, verb]
            for length in range(1, len(name[-1])):
                words = [*name[:-1], name[-1][:length]]
                read = read_line(words, NOUNS).words
                if read[: len(name)] == name and words[-1] != name[-1]:
                    exact = any(word in tables for word in words for tables in (peer_words.VERBS, peer_words.COMMANDS))
                    assert exact or not isinstance(command, (ChangingCommand, LocalChange)), words
                    assert exact or getattr(command, "only_shows", False), words


def test_option_without_a_value_that_is_given_one_leads_to_the_option_with_one(kctl: Kctl) -> None:
    ran = kctl("consume orders --header source=web --limit 1")
    assert "kctl: got unexpected extra argument (source=web).  --header takes no value; did you " in ran.err
    assert "did you mean --record-header?  Try 'kctl consume --help'." in ran.err
    assert "takes no value" not in kctl("consume orders more --limit 1").err


def test_word_that_resembles_nothing_has_no_suggestion(kctl: Kctl) -> None:
    options = ("topics list --xyzzy", "quotas alter --set producer_byte_rate=5")
    for line in ("xyzzy", "--xyzzy", "topics xyzzy", "topics --xyzzy", *options):
        assert "Did you mean" not in kctl(line).err


def test_every_word_in_the_tables_exists() -> None:
    commands = all_commands()
    meant = [
        *peer_words.COMMANDS.values(),
        *peer_words.VERBS_OF.values(),
        *peer_words.VERBS_ANSWERED.values(),
        *peer_words.ROOT_OPTIONS.values(),
        *peer_words.MODES.values(),
        *peer_words.OPTIONS_OF,
    ]
    for text in meant:
        noun, *rest = text.split()
        assert noun in commands, text
        assert noun in commands[noun] or not rest or rest[0] in commands[noun], text
    assert not set(peer_words.COMMANDS) & set(NOUNS)
    assert not {(noun, verb) for noun, verbs in commands.items() for verb in verbs} & set(peer_words.VERBS_OF)
    flags = {
        flag
        for verbs in commands.values()
        for command in verbs.values()
        for param in command.params
        for flag in flags_of(param)
    }
    for table in (peer_words.OPTIONS, *peer_words.OPTIONS_OF.values()):
        for entry in table.values():
            for text in [entry] if isinstance(entry, str) else entry:
                flag = text.removeprefix("!").partition(" ")[0]
                assert not flag.startswith("-") or "{}" in flag or flag in flags, text


def test_usual_words_for_showing_lead_to_the_verb_that_shows() -> None:
    for noun, verbs in all_commands().items():
        if not {"list", "describe", "get", "show"} & verbs.keys():
            continue
        for word in {"list", "ls", "describe", "show", "get"} - verbs.keys():
            assert read_line([noun, word], NOUNS).words[1] in verbs or (noun, word) in peer_words.VERBS_ANSWERED
