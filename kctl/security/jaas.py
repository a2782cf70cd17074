"""Parses values of `sasl.jaas.config`: a login module and its options.  KIP-85, KIP-103.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

The name of the module selects one of the mechanisms that are built in; no class is loaded.  Options often contain
passwords: they are not part of the repr, and errors contain no values.

Kafka: JaasConfig, JaasContext (2.8).

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kctl.errors import KctlError
from kctl.limits import Subject, bound

JAAS_CHARACTERS_MAX = bound(
    Subject.AUTHENTICATION,
    "value of sasl.jaas.config",
    1 << 20,
    "characters",
    on_excess="the configuration is refused",
)


MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
"""The login module of each mechanism, without its package."""

CONTROL_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN = re.compile(
    r"""
    (?P<space>[\x00-\x20]+ | /\*.*?\*/ | /\*.* | /[^\r\n]*)
    | "(?P<double>(?:[^"\\\r\n]|\\.)*)(?:"|(?=[\r\n]))
    | '(?P<single>(?:[^'\\\r\n]|\\.)*)(?:'|(?=[\r\n]))
    | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\xa0-\U0010ffff-]*)
    | (?P<mark>[=;])
    | (?P<other>-?[0-9.]+ | [^"'])
    """,
    re.VERBOSE | re.DOTALL,
)
"""The tokens of java.io.StreamTokenizer as JaasConfig sets it up.

A single / begins a comment too, a comment that is not closed ends the text, a line break ends a quoted string, and
numbers are not words.
"""
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(KctlError):
    """The value is malformed.  The text contains no option values."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module with its options."""

    class_name: str
    """The Java class, such as `org.apache.kafka.common.security.scram.ScramLoginModule`."""
    options: Mapping[str, str] = field(repr=False)

    @property
    def simple_name(self) -> str:
        """The class without its package: `ScramLoginModule`."""
        return self.class_name.rpartition(".")[2]

    def problem_for(self, mechanism: str) -> str | None:
        """Return why the module does not serve a mechanism of `MODULES`; None if it does.

        A module that is none of them is not named: a misplaced password would be shown.
        """
        needed = MODULES[mechanism]
        if self.simple_name == needed:
            return None
        given = self.simple_name if self.simple_name in MODULES.values() else "another login module"
        return f"has {given}, but {mechanism} needs {needed}"


def parse_jaas(text: str) -> LoginModule:
    """Return the one login module of a `sasl.jaas.config` value.  Raises JaasError."""
    if len(text) > JAAS_CHARACTERS_MAX:
        raise JaasError(f"the value has {len(text)} characters; the limit is {JAAS_CHARACTERS_MAX}")
    tokens = _tokens(text)
    class_name, is_word = next(tokens, ("", False))
    if not is_word:
        raise JaasError("the login module is missing")
    flag, is_word = next(tokens, ("", False))
    if not is_word or flag.lower() not in CONTROL_FLAGS:
        raise JaasError("the control flag (required, requisite, sufficient or optional) after the module is missing")
    options: dict[str, str] = {}
    for name, is_word in tokens:
        if not is_word:
            if name == ";":
                break
            if name == "=":
                raise JaasError("an option begins with '='")
            raise JaasError(f"{_shown_last(options)}: {_QUOTED}")
        if next(tokens, None) != ("=", False):
            # After another option it may be the rest of an unquoted password.
            which = f"an option {_shown_last(options)}" if options else f"option {_shown(name)}"
            raise JaasError(f"{which} has no value")
        value, is_value = next(tokens, (";", False))
        if not is_value:
            what = "has no value" if value in {"=", ";"} else f"needs quotes: {_QUOTED}"
            raise JaasError(f"option {_shown(name)} {what}")
        options[name] = value
    else:
        hint = "; a / that is not in quotation marks begins a comment" if "/" in text else ""
        raise JaasError(f"the semicolon at the end is missing{hint}")
    if next(tokens, None) is not None:
        raise JaasError("the value contains more than one login module")
    return LoginModule(class_name, options)


_QUOTED = (
    'write a value in quotation marks, NAME="VALUE", unless it begins with a letter and has only letters, digits, '
    "., -, _ and $"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,80}")


def _shown(name: str) -> str:
    """Return the name of an option for an error text; other text is hidden, because it may be part of a password."""
    return name if _NAME.fullmatch(name) else "(unreadable)"


def _shown_last(options: dict[str, str]) -> str:
    return f"after option {_shown(next(reversed(options)))}" if options else "after the control flag"


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each token, and whether it is a word or a quoted string and not one of the marks `=` and `;`."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(f"a quotation mark is not closed at character {position + 1}")
        position = match.end()
        if (quoted := match["double"] if match["double"] is not None else match["single"]) is not None:
            yield _ESCAPE.sub(_unescaped, quoted), True
        elif match["word"]:
            yield match["word"], True
        elif unquoted := match["mark"] or match["other"]:
            yield unquoted, False


def _unescaped(found: re.Match[str]) -> str:
    """Return the character of an escape sequence of java.io.StreamTokenizer."""
    code = found[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)
