"""What a shell completes at the cursor: divides the command line, finds what is expected there, and quotes the answer.

Names are data of other people.  A name with a control character is never offered, and each shell gets a name in a form
that it does not evaluate: bash inserts what it gets, so that kctl quotes it; zsh and fish quote by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kctl.commands.frame.options.vocabulary import Argument, Option, Values, Vocabulary

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-")
"""Characters without a meaning for bash, except that it divides words at : and =."""


class Word(NamedTuple):
    """A word of a command line that may not be finished."""

    text: str
    """Without quotation marks and backslashes."""
    raw: str
    """As it was typed."""
    quote: str = ""
    """The quotation mark that is still open."""
    quote_at: int = -1
    """Where it is in `raw`."""


def divide(line: str) -> list[Word]:
    """Return the words of a line up to the cursor; the last one is at the cursor, and empty after a space."""
    words: list[Word] = []
    position = 0
    while True:
        while line[position : position + 1].isspace():
            position += 1
        word, position = _word(line, position)
        words.append(word)
        if position == len(line):
            return words


def _word(line: str, start: int) -> tuple[Word, int]:
    """Return the word that begins there, and where it ends."""
    text, quote, quote_at, position = "", "", -1, start
    while position < len(line) and (quote or not line[position].isspace()):
        character = line[position]
        following = line[position + 1 : position + 2]
        if character == "\\" and quote != "'" and (not quote or following in {'"', "\\", "$", "`"}):
            text += following
            position += 1
        elif character == quote:
            quote = ""
        elif not quote and character in {"'", '"'}:
            quote, quote_at = character, position - start
        else:
            text += character
        position += 1
    position = min(position, len(line))
    return Word(text, line[start:position], quote, quote_at if quote else -1), position


class Expected(NamedTuple):
    """What a command line expects at the cursor."""

    values: Values
    typed: str = ""
    """The beginning of the value."""
    front: str = ""
    """What stands before it in the same word: `--topic=`, or the other values of a list."""
    words: tuple[tuple[str, str], ...] = ()
    """Nouns, verbs or options that fit, each with its help; then there are no `values`."""
    given: tuple[str, ...] = ()
    """The arguments before."""
    options: tuple[tuple[str, str], ...] = ()
    """The options before, each with its value."""


NOTHING = Expected(Values())


def expected_at_cursor(words: Sequence[str], vocabulary_of: Callable[[str], Vocabulary | None]) -> Expected:
    """Return what may follow: `words` are those after `kctl`, the last one at the cursor.

    `vocabulary_of` returns the words of a command by its name, such as `topics create`.
    """
    *before, typed = words or [""]
    options: list[tuple[str, str]] = []
    name = ""
    vocabulary = vocabulary_of("")
    while vocabulary is not None:
        root = vocabulary_of("") or Vocabulary()
        # Common options may also stand before a verb.
        known = vocabulary.options or root.options
        arguments, found, pending, ended = _read(before, known, stop=bool(vocabulary.members))
        options += found
        if pending is not None:
            return _value(pending, typed, "", arguments, options)
        if not vocabulary.members:
            return _in_command(vocabulary, typed, arguments, options, has_ended=ended)
        if not arguments:
            return _member(vocabulary, root, typed, options, is_noun=not name)
        name = f"{name} {arguments[0]}".strip()
        before = before[len(before) - len(arguments) + 1 :]
        vocabulary = vocabulary_of(name) if arguments[0] in dict(vocabulary.members) else None
    return NOTHING


def _read(
    words: Sequence[str], options: Iterable[Option], *, stop: bool
) -> tuple[list[str], list[tuple[str, str]], Values | None, bool]:
    """Return the arguments, options with values, what the last option still needs, and whether `--` has ended the
    options.

    With `stop`, the first argument and all words after it are the arguments.
    """
    by_flag = {flag: option for option in options for flag in option.flags}
    arguments: list[str] = []
    found: list[tuple[str, str]] = []
    position, has_ended = 0, False
    while position < len(words):
        word = words[position]
        flag, equals, value = word.partition("=")
        option = by_flag.get(flag)
        position += 1
        if has_ended or not word.startswith("-") or word == "-":
            if stop:
                return list(words[position - 1 :]), found, None, has_ended
            arguments.append(word)
        elif word == "--":
            has_ended = True
        elif option is None and word[:2] in by_flag and not word.startswith("--"):
            found.append((_name(by_flag[word[:2]]), word[2:]))
        elif option is None or option.values is None:
            continue
        elif equals:
            found.append((_name(option), value))
        elif position < len(words):
            found.append((_name(option), words[position]))
            position += 1
        else:
            return arguments, found, option.values, has_ended
    return arguments, found, None, has_ended


def _name(option: Option) -> str:
    return option.flags[-1]


def _member(
    vocabulary: Vocabulary, root: Vocabulary, typed: str, options: list[tuple[str, str]], *, is_noun: bool
) -> Expected:
    """Return a noun or verb, or a common option before it."""
    if not typed.startswith("-"):
        return NOTHING._replace(words=vocabulary.members, typed=typed)
    if is_noun:
        return _option(root.options, typed, (), options)
    return NOTHING._replace(words=(("--help", "Print help."),), typed=typed)


def _in_command(
    vocabulary: Vocabulary, typed: str, arguments: list[str], options: list[tuple[str, str]], *, has_ended: bool
) -> Expected:
    if typed.startswith("-") and not has_ended:
        return _option(vocabulary.options, typed, arguments, options)
    expected = _argument(vocabulary.arguments, len(arguments))
    return NOTHING if expected is None else _value(expected.values, typed, "", arguments, options)


def _argument(arguments: Sequence[Argument], number: int) -> Argument | None:
    if number < len(arguments):
        return arguments[number]
    return arguments[-1] if arguments and arguments[-1].repeats else None


def _option(known: Sequence[Option], typed: str, arguments: Sequence[str], options: list[tuple[str, str]]) -> Expected:
    """Return the options that fit, or the value after `--option=`."""
    flag, equals, value = typed.partition("=")
    if equals:
        chosen = next((option.values for option in known if flag in option.flags), None)
        return NOTHING if chosen is None else _value(chosen, value, f"{flag}=", arguments, options)
    words = [(flag, option.help) for option in known for flag in option.flags]
    return NOTHING._replace(words=(*words, ("--help", "Print help.")), typed=typed)


def _value(
    values: Values, typed: str, front: str, arguments: Sequence[str], options: Sequence[tuple[str, str]]
) -> Expected:
    if values.is_list and values.kind not in {"files", "directories"}:
        head, comma, typed = typed.rpartition(",")
        front += head + comma
    return Expected(values, typed, front, (), tuple(arguments), tuple(options))


def is_harmless(text: str) -> bool:
    """Return whether a name has no control or invisible character and is not an option."""
    return text.isprintable() and not text.startswith("-") and bool(text)


def in_bash(candidates: Iterable[str], word: Word, replaced: str) -> list[str]:
    """Return what bash inserts for each candidate, where `replaced` is the end of the word that it replaces.

    The beginning that was typed stays as it is; what is added is quoted for the quotation that is open.
    """
    raw = word.raw
    if not word.quote and (len(raw) - len(raw.rstrip("\\"))) % 2:
        raw = raw[:-1]  # A backslash that bash has inserted, because all candidates go on with one.
    start = word.quote_at + 1 if word.quote else len(word.raw) - len(replaced)
    if not word.quote and not word.raw.endswith(replaced):
        return []
    quoted = (_quoted(candidate.removeprefix(word.text), word.quote) for candidate in candidates)
    inserted = [(raw + rest)[start:] for rest in quoted if rest is not None]
    # bash closes the quotation, except after text that ends with the same mark.
    return [text + word.quote if word.quote and text.endswith(word.quote) else text for text in inserted]


def _quoted(text: str, quote: str) -> str | None:
    """Return the text in bash within the quotation marks; None if that is impossible."""
    if quote == "'":
        return text.replace("'", "'\\''")
    if quote:  # bash expands the history at ! within these, whatever is before it.
        return (
            None
            if "!" in text
            else "".join(f"\\{character}" if character in '\\"$`' else character for character in text)
        )
    return "".join(
        character if character in _PLAIN or not character.isascii() else f"\\{character}" for character in text
    )
