r"""The syntax of RE2: an expression becomes a tree of sets of characters, repetitions and positions.

A set is a number with a bit for each character of an alphabet: the 65 of names of topics, or those of the name that is
matched.  A character that no name can have is an empty set.  All of RE2's syntax is known: Perl's classes, classes of
POSIX and Unicode, `\Q...\E`, flags, named groups.  Back references and look-around are not part of RE2, and are refused
as RE2 refuses them.

Pure.  Source: https://github.com/google/re2/wiki/Syntax, RE2/J, which Kafka's broker uses.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kctl.limits import Subject, bound

REGEX_CHARACTERS_MAX = bound(
    Subject.COORDINATION,
    "regular expression of a member's subscription",
    1_000,
    "characters",
    on_excess="INVALID_REGULAR_EXPRESSION",
)
REPEAT_MAX = 1_000
"""RE2's bound on the numbers in {n,m}."""
_DEPTH_MAX = 100
"""RE2's is 1,000; a parser of Python needs several frames for each."""


class InvalidRegex(ValueError):
    """An expression is not valid; the text is RE2's."""


class Position(Enum):
    """A place between two characters."""

    START = "start"
    END = "end"
    WORD_BOUNDARY = "word boundary"
    NO_WORD_BOUNDARY = "no word boundary"


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set."""

    bits: int


@dataclass(frozen=True, slots=True)
class At:
    """A position."""

    position: Position


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; nothing if there are no parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of them."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repetitions of a part; without an upper bound if `most` is None."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = Characters | At | Sequence | Alternatives | Repeat


class Alphabet:
    """The characters that names can consist of, and sets of them as numbers with a bit for each character."""

    def __init__(self, characters: Iterable[str]) -> None:
        """Add the other cases of letters too, for expressions that do not distinguish them."""
        closed = {case for given in characters for case in (given, given.lower(), given.upper()) if len(case) == 1}
        self.bits = {character: 1 << index for index, character in enumerate(sorted(closed))}
        self.all = (1 << len(self.bits)) - 1
        self.word = self.set(_WORD)
        digits, space = self.set(string.digits), self.set("\t\n\f\r ")
        self.perl = {
            "d": digits,
            "s": space,
            "w": self.word,
            "D": self.all & ~digits,
            "S": self.all & ~space,
            "W": self.all & ~self.word,
        }
        self.posix = {name: self.set(members) for name, members in _POSIX.items()}

    def set(self, characters: Iterable[str]) -> int:
        """Return the set of these characters; those that are not in the alphabet are left out."""
        bits = 0
        for character in characters:
            bits |= self.bits.get(character, 0)
        return bits

    def range(self, low: str, high: str) -> int:
        """Return the set of the characters from one to another."""
        return self.set(character for character in self.bits if low <= character <= high)

    def folded(self, bits: int) -> int:
        """Return a set with the other cases of its letters."""
        return bits | self.set(
            other
            for character, bit in self.bits.items()
            if bit & bits
            for other in (character.lower(), character.upper())
        )

    def unicode_class(self, name: str) -> int:
        """Return the characters of a general category or a script.  Raises InvalidRegex."""
        if name == "Any":
            return self.all
        if name == "Common":
            return self.set(character for character in self.bits if not character.isalpha())
        if name in _SCRIPTS:
            prefix = _NAMES_OF_SCRIPTS.get(name, name.upper())
            return self.set(
                character for character in self.bits if unicodedata.name(character, "").startswith(f"{prefix} ")
            )
        if name in _CATEGORIES:
            return self.set(character for character in self.bits if unicodedata.category(character).startswith(name))
        raise InvalidRegex("invalid character class range")


_WORD = string.ascii_letters + string.digits + "_"
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(0x80))),
    "blank": " \t",
    "cntrl": "".join(map(chr, [*range(0x20), 0x7F])),
    "digit": string.digits,
    "graph": "".join(map(chr, range(0x21, 0x7F))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(0x20, 0x7F))),
    "punct": string.punctuation,
    "space": string.whitespace,
    "upper": string.ascii_uppercase,
    "word": _WORD,
    "xdigit": string.hexdigits,
}
_CATEGORIES = frozenset(
    {"C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No"}
    | {"P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"}
)
_SCRIPTS = frozenset(
    {"Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Georgian", "Greek", "Han", "Hangul", "Hebrew"}
    | {"Hiragana", "Katakana", "Khmer", "Lao", "Latin", "Mongolian", "Tamil", "Telugu", "Thai", "Tibetan"}
)
_NAMES_OF_SCRIPTS = {"Han": "CJK"}
"""How the names of characters begin, where that is not the name of the script."""
TOPIC_NAMES = Alphabet(string.ascii_letters + string.digits + "._-")
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse(expression: str, alphabet: Alphabet) -> Node:
    """Return the tree of an expression for names of an alphabet.  Raises InvalidRegex."""
    if len(expression) > REGEX_CHARACTERS_MAX:
        raise InvalidRegex(f"expression has more than {REGEX_CHARACTERS_MAX} characters")
    parser = _Parser(expression, alphabet)
    node = parser.alternatives()
    if parser.rest:
        raise InvalidRegex("unexpected )")
    return node


class _Parser:
    """A parser by recursive descent."""

    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self._text = text
        self._alphabet = alphabet
        self._at = 0
        self._depth = 0
        self._folds_case = False
        self._dot = alphabet.all & ~alphabet.set("\n")
        self._names: set[str] = set()

    @property
    def rest(self) -> str:
        return self._text[self._at :]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self._at):
            self._at += len(prefix)
            return True
        return False

    def _next(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def alternatives(self) -> Node:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while (character := self._peek()) and character not in "|)":
            if self._take("\\Q"):
                literal, _, rest = self.rest.partition("\\E")
                self._at = len(self._text) - len(rest)
                quoted = [self._character(character) for character in literal]
                # An operator after the end applies to the last character.
                parts += quoted and [*quoted[:-1], self._repeated(quoted[-1])]
                continue
            part = self._atom()
            if part is not None:
                parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._take("?")  # Whether few or many repetitions are preferred makes no difference for the whole name.
        if self._bounds() is not None:
            raise InvalidRegex("invalid nested repetition operator")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Read a repetition operator, if there is one; braces without numbers are literal."""
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        start = self._at
        if not self._take("{"):
            return None
        least = self._number()
        most: int | None = least
        if least is not None and self._take(","):
            most = None if self._peek() == "}" else self._number()
            if most is None and self._peek() != "}":
                least = None
        if least is None or not self._take("}"):
            self._at = start
            return None
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise InvalidRegex("invalid repeat count")
        return least, most

    def _number(self) -> int | None:
        start = self._at
        while self._peek() in set(string.digits):
            self._at += 1
        digits = self._text[start : self._at]
        return int(digits[:9]) if digits else None

    def _atom(self) -> Node | None:
        """Read one part; None if there is nothing to match, as for flags."""
        character = self._peek()
        start = self._at
        if character in "*+?" or (character == "{" and self._bounds() is not None):
            self._at = start
            raise InvalidRegex("missing argument to repetition operator")
        self._at = start + 1
        match character:
            case "(":
                return self._group()
            case "[":
                return Characters(self._class())
            case ".":
                return Characters(self._dot)
            case "^":
                return At(Position.START)
            case "$":
                return At(Position.END)
            case "\\":
                return self._escape()
            case _:
                return self._character(character)

    def _character(self, character: str) -> Characters:
        return Characters(self._folded(self._alphabet.set(character)))

    def _folded(self, bits: int) -> int:
        return self._alphabet.folded(bits) if self._folds_case else bits

    def _group(self) -> Node | None:
        folds_case, dot = self._folds_case, self._dot
        if self._take("?"):
            if self._take("P<") or (self._peek() == "<" and self.rest[1:2] not in {"=", "!"} and self._take("<")):
                self._name()
            elif self._flags():
                return None
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidRegex("expression nests too deeply")
        node = self.alternatives()
        if not self._take(")"):
            raise InvalidRegex("missing closing )")
        self._depth -= 1
        self._folds_case, self._dot = folds_case, dot
        return node

    def _name(self) -> None:
        name, closing, _ = self.rest.partition(">")
        if not closing or not name or not all(c == "_" or (c.isascii() and c.isalnum()) for c in name):
            raise InvalidRegex("invalid named capture")
        if name in self._names:
            raise InvalidRegex("duplicate capture group name")
        self._names.add(name)
        self._at += len(name) + 1

    def _flags(self) -> bool:
        """Read flags; return True if they are for the rest of the enclosing group, False if a group follows."""
        sign, has_flags = True, False
        while (flag := self._next()) not in {":", ")"}:
            if flag == "-" and sign:
                sign, has_flags = False, False
            elif flag and flag in "imsU":
                has_flags = True
                if flag == "i":
                    self._folds_case = sign
                if flag == "s":
                    self._dot = self._alphabet.all if sign else self._alphabet.all & ~self._alphabet.set("\n")
            else:
                raise InvalidRegex("invalid or unsupported Perl syntax")
        if not has_flags and (flag == ")" or not sign):
            raise InvalidRegex(
                "missing argument to repetition operator" if sign else "invalid or unsupported Perl syntax"
            )
        return flag == ")"

    def _escape(self) -> Node:
        character = self._next()
        match character:
            case "":
                raise InvalidRegex("trailing backslash at end of expression")
            case "A":
                return At(Position.START)
            case "z":
                return At(Position.END)
            case "b":
                return At(Position.WORD_BOUNDARY)
            case "B":
                return At(Position.NO_WORD_BOUNDARY)
            case "C":
                return Characters(self._alphabet.all)
            case _ if character in self._alphabet.perl:
                return Characters(self._alphabet.perl[character])
            case "p" | "P":
                return Characters(self._unicode(is_negated=character == "P"))
            case _:
                return self._character(self._escaped(character))

    def _escaped(self, character: str) -> str:
        r"""Return the character that an escape stands for, after its backslash and first character."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0" or (character in "1234567" and self._peek() and self._peek() in "01234567"):
            digits = character
            while len(digits) < 3 and self._peek() and self._peek() in "01234567":
                digits += self._next()
            return chr(int(digits, 8))
        if character.isascii() and not character.isalnum():
            return character
        raise InvalidRegex("invalid escape sequence")

    def _hexadecimal(self) -> str:
        if self._take("{"):
            digits, closing, _ = self.rest.partition("}")
            self._at += len(digits) + 1
        else:
            digits, closing = self.rest[:2], "x" if len(self.rest) >= 2 else ""
            self._at += 2
        if not closing or not digits or not set(digits) <= set(string.hexdigits) or int(digits[:9], 16) > 0x10FFFF:
            raise InvalidRegex("invalid escape sequence")
        return chr(int(digits[:9], 16))

    def _unicode(self, *, is_negated: bool) -> int:
        if self._take("{"):
            name, closing, _ = self.rest.partition("}")
            self._at += len(name) + 1
            if not closing:
                raise InvalidRegex("invalid character class range")
        else:
            name = self._next()
        if name.startswith("^"):
            name, is_negated = name[1:], not is_negated
        bits = self._alphabet.unicode_class(name)
        return self._alphabet.all & ~bits if is_negated else bits

    def _class(self) -> int:
        is_negated = self._take("^")
        bits = 0
        is_first = True
        while is_first or self._peek() != "]":
            if not self._peek():
                raise InvalidRegex("missing closing ]")
            if self._peek() == "-" and not is_first and self.rest[1:2] not in {"]", ""}:
                raise InvalidRegex("invalid character class range")
            is_first = False
            named = self._named_class()
            if named is None:
                low = self._class_character()
                named = self._range(low)
            bits |= named
        self._at += 1
        bits = self._folded(bits)
        return self._alphabet.all & ~bits if is_negated else bits

    def _named_class(self) -> int | None:
        if self.rest.startswith("[:") and ":]" in self.rest:
            name, _, _ = self.rest[2:].partition(":]")
            self._at += len(name) + 4
            is_negated, name = name.startswith("^"), name.removeprefix("^")
            if name not in _POSIX:
                raise InvalidRegex("invalid character class range")
            members = self._alphabet.posix[name]
            return self._alphabet.all & ~members if is_negated else members
        if self.rest[:1] == "\\" and self.rest[1:2] in {*self._alphabet.perl, "p", "P"}:
            self._at += 1
            character = self._next()
            of_perl = self._alphabet.perl.get(character)
            return self._unicode(is_negated=character == "P") if of_perl is None else of_perl
        return None

    def _class_character(self) -> str:
        character = self._next()
        if character != "\\":
            return character
        escaped = self._next()
        if not escaped:
            raise InvalidRegex("trailing backslash at end of expression")
        return self._escaped(escaped)

    def _range(self, low: str) -> int:
        if self._peek() != "-" or self.rest[1:2] in {"]", ""}:
            return self._alphabet.set(low)
        self._at += 1
        high = self._class_character()
        if high < low:
            raise InvalidRegex("invalid character class range")
        return self._alphabet.range(low, high)
