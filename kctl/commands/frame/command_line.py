"""Reads a command line that has words of other tools, or beginnings of names, as a command line of kctl.

`kctl topic ls -b broker:9092` is `kctl topics list -b broker:9092`.  `peer_words` has the words.  A beginning of a name
is enough for a noun, and for a verb that only shows something: what changes something runs under its whole name only.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kctl.commands.frame.help.peer_words import (
    COMMAND_OF_OPTION,
    COMMAND_WORDS_MAX,
    MODES,
    command_words,
    option_texts,
    prefix_match,
    value_meant,
    verb_words,
)
from kctl.commands.frame.lazy_group import LazyGroup, Member, load, split_leading
from kctl.commands.frame.options.parameters import (
    Parameter,
    choices_of,
    flags_of,
    is_argument,
    is_flag,
    metavar_of,
    repeats,
)
from kctl.commands.frame.profiles.secrets import is_secret

WORDS_SHOWN_MAX = 40
_STEPS_MAX = 8
"""Replacements of the first words; each table is applied at most a few times."""


class Reading(NamedTuple):
    """A command line in the words of kctl."""

    words: list[str]
    is_changed: bool

    def line(self) -> str:
        """Return the command line as a shell would read it, without secrets."""
        shown = [_without_secret(word) for word in self.words[:WORDS_SHOWN_MAX]]
        return shlex.join(["kctl", *shown]) + (" ..." if len(self.words) > WORDS_SHOWN_MAX else "")


def read_line(arguments: Sequence[str], nouns: Mapping[str, Member]) -> Reading:
    """Return a command line in the words of kctl; unchanged if it is one already, or means nothing."""
    words, is_changed = list(arguments), False
    if words[:1] == ["help"] and words[1:] not in ([], ["--all"]):
        words = [*words[1:], "--help"]
    for _ in range(_STEPS_MAX):
        replaced = _replace_command(words, nouns)
        if replaced is None:
            break
        words, is_changed = replaced, True
    leading, noun, rest = split_leading(words)
    if noun is None or noun not in nouns:
        return Reading(words, False)
    command, path = load(nouns[noun]), [noun]
    if isinstance(command, LazyGroup):
        more, verb, rest = split_leading(rest)
        leading += more
        if verb is None or verb not in command.members:
            return Reading(words, is_changed and verb in {None, "--help", "-h"})
        command, path = load(command.members[verb]), [noun, verb]
    given = [*leading, *rest]
    translated, is_understood = translate_options(" ".join(path), command.params, given)
    return Reading([*path, *translated], is_understood and (is_changed or translated != given))


def _replace_command(words: list[str], nouns: Mapping[str, Member]) -> list[str] | None:
    """Return the line with one replacement among the words of the command; None if there is nothing to replace."""
    leading, noun, rest = split_leading(words)
    if noun is None:
        return None
    if noun in MODES:
        return [*MODES[noun].split(), *leading, *rest]
    if noun in nouns:
        return _replace_verb(noun, leading, rest, load(nouns[noun]), nouns)
    more, second, after = split_leading(rest)
    following = [] if second is None else [second, *after]
    if meant := command_words([noun, *following[: COMMAND_WORDS_MAX - 1]], nouns):
        replacement, count = meant
        return [*replacement, *leading, *more, *following[count - 1 :]]
    matches = prefix_match(noun, nouns)
    if len(matches) == 1 and _may_be_shortened(load(nouns[matches[0]])):
        return [matches[0], *leading, *rest]
    return None


def _replace_verb(
    noun: str, leading: list[str], rest: list[str], group: Any, nouns: Mapping[str, Member]
) -> list[str] | None:
    if not isinstance(group, LazyGroup):
        return None
    more, verb, after = split_leading(rest)
    leading = [*leading, *more]
    if verb is None or verb in group.members or verb in {"--help", "-h"}:
        return None
    if (meant := command_words([noun, verb, *after[: COMMAND_WORDS_MAX - 2]], nouns)) and meant[1] > 1:
        return [*meant[0], *leading, *after[meant[1] - 2 :]]
    if verb.startswith("-"):
        # The scripts of Kafka have their verbs as options, anywhere.
        for position, word in enumerate([verb, *after]):
            option = COMMAND_OF_OPTION.get(word)
            if option is not None and (option in group.members or verb_words(noun, option, group.members)):
                options = [verb, *after]
                return [noun, option, *leading, *options[:position], *options[position + 1 :]]
        return None
    if replacement := verb_words(noun, verb, group.members):
        return [*replacement, *leading, *after]
    matches = prefix_match(verb, group.members)
    if len(matches) == 1 and _may_be_shortened(load(group.members[matches[0]])):
        return [noun, matches[0], *leading, *after]
    return None


def _may_be_shortened(command: Any) -> bool:
    return isinstance(command, LazyGroup) or bool(getattr(command, "only_shows", False))


# Options of one command.


def translate_options(command: str, params: Sequence[Parameter], arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Return the arguments of a command with its own options in place of others, and whether they are all read.

    Options that mean nothing come first, so that the error is about them.
    """
    reader = _OptionReader(command, params)
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            reader.rest = words
            break
        if word.startswith("-") and len(word) > 1:
            reader.read_option(word, words)
        else:
            reader.read_argument(word)
    result = reader.result()
    return (result if reader.is_changed else list(arguments)), not reader.unknown


class _OptionReader:
    """Collects the options and arguments of a command line in the words of kctl.  Owner: `translate_options`."""

    def __init__(self, command: str, params: Sequence[Parameter]) -> None:
        self.command = command
        self.options = {flag: param for param in params for flag in flags_of(param)}
        self.arguments = {
            "TYPE" if choices_of(param) else metavar_of(param): param for param in params if is_argument(param)
        }
        self.words: list[str] = []
        """Options with their values and, while no option has become an argument, the arguments between them."""
        self.positions: list[int] = []
        """Where the arguments are in `words`."""
        self.rest: list[str] = []
        """Arguments behind `--`."""
        self.named: dict[str, list[str]] = {}
        self.unknown: list[str] = []
        """Options that are of no tool, or have no equivalent."""
        self.is_changed = False

    def read_argument(self, word: str) -> None:
        """Read an argument, whose value another tool may name otherwise."""
        number = len(self.positions)
        key = list(self.arguments)[number] if number < len(self.arguments) else ""
        meant = value_meant(key, word)
        self.is_changed |= meant != word
        self.positions.append(len(self.words))
        self.words.append(meant)

    def read_option(self, word: str, following: list[str]) -> None:
        """Read an option, and its value from the words that follow."""
        flag, equals, value = word.partition("=")
        attached = [value] if equals else []
        if flag not in self.options and not flag.startswith("--") and len(word) > 2:
            flag, attached = word[:2], [word[2:]]
        if flag in self.options:
            self._read_known(flag, word, attached, following)
            return
        for text in option_texts(self.command, flag):
            if self._replace(text, attached, following):
                self.is_changed = True
                return
        self.unknown.append(word)

    def _read_known(self, flag: str, word: str, attached: list[str], following: list[str]) -> None:
        param = self.options[flag]
        if is_flag(param):
            self.words.append(word)
            return
        is_optional = metavar_of(param).startswith("[")
        if not attached and following and not (is_optional and not following[0][:1].isdigit()):
            value = following.pop(0)
            meant = value_meant(max(flags_of(param), key=len), value)
            self.is_changed |= meant != value
            self.words += [word, meant]
            return
        meant = value_meant(max(flags_of(param), key=len), attached[0]) if attached else ""
        if attached and meant != attached[0]:
            self.is_changed = True
            word = f"{flag}={meant}"
        self.words.append(word)

    def _replace(self, text: str, attached: list[str], following: list[str]) -> bool:
        """Use the text of `peer_words.OPTIONS` for an option; False if this command cannot."""
        if text.startswith("!"):
            if text[1:] not in self.words:
                return False
            self._remove(text[1:], 1)
            return True
        if not text.startswith("-"):
            return self._replace_by_arguments(text, attached, following)
        flag, _, value = text.partition(" ")
        if "{}" in flag:
            flag = flag.replace("{}", (attached or following[:1] or [""])[0])
            if flag in self.options and not attached:
                del following[:1]
        param = self.options.get(flag)
        if param is None:
            return False
        if is_flag(param) or (value and "{}" not in value):
            self._add(flag, [value] if value else [])
            return True
        values = attached or following[:1]
        if not values:
            return False
        meant = value_meant(flag, values[0])
        choices = choices_of(param)
        if choices and meant not in choices:
            return False
        self._add(flag, [value.replace("{}", meant) if value else meant])
        if not attached:
            del following[:1]
        return True

    def _add(self, flag: str, values: list[str]) -> None:
        """Add an option, in place of an earlier one if it is used once."""
        if flag in self.words and not repeats(self.options[flag]):
            self._remove(flag, 1 + len(values))
        self.words += [flag, *values]

    def _remove(self, flag: str, count: int) -> None:
        start = self.words.index(flag)
        del self.words[start : start + count]
        self.positions = [position - count if position > start else position for position in self.positions]

    def _replace_by_arguments(self, text: str, attached: list[str], following: list[str]) -> bool:
        """Use `TYPE=topic NAME`: arguments by metavar, of which the one without = gets the value."""
        values = attached or following[:1]
        for piece in text.split():
            name, equals, constant = piece.partition("=")
            key = self._argument(name)
            if key is None or (not equals and not values):
                return False
            self.named.setdefault(key, []).append(constant if equals else value_meant(key, values[0]))
            if not equals and not attached:
                del following[:1]
        return True

    def _argument(self, name: str) -> str | None:
        return next((key for key in self.arguments if key.startswith(name)), None)

    def result(self) -> list[str]:
        """Return the arguments and options; those that mean nothing first, so that the error is about them."""
        if not self.named:
            return [*self.unknown, *self.words, *(["--", *self.rest] if self.rest else [])]
        given = [*(self.words[position] for position in self.positions), *self.rest]
        options = [word for position, word in enumerate(self.words) if position not in self.positions]
        ordered = []
        for key, param in self.arguments.items():
            named = self.named.get(key, [])
            if named:
                ordered += named
            elif given and not repeats(param):
                ordered.append(given.pop(0))
        ordered += given
        if any(word.startswith("-") and word != "-" for word in ordered):
            return [*self.unknown, *options, "--", *ordered]
        return [*self.unknown, *ordered, *options]


def _without_secret(word: str) -> str:
    name, equals, _ = word.partition("=")
    return f"{name}=..." if equals and is_secret(name) else word
