"""The user name of a client certificate: its distinguished name, mapped by ssl.principal.mapping.rules.

Kafka: DefaultKafkaPrincipalBuilder and SslPrincipalMapper (2.8), KIP-371; Java: X500Principal.getName().
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kctl.errors import ConfigError, KctlError

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 names; others are written as their OID and the hexadecimal encoding of the value."""
_ESCAPED = set(',=+<>#;"\\')
_LEADING_OR_TRAILING = re.compile(r"^[ \r]+|[ \r]+$")

_RULE_TEXT = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_RULE_SPLITTER = re.compile(rf"\s*({_RULE_TEXT})\s*(,\s*|$)")
_RULE = re.compile(_RULE_TEXT)
_REFERENCE = re.compile(r"\\(.)|\$([0-9]+)|\$\{([A-Za-z][A-Za-z0-9]*)\}", re.DOTALL)
_CHARACTER_CLASS = re.compile(r"\\.|\[\^?(?P<content>(?:\\.|[^\\\]])*)", re.DOTALL)
_PROPERTY = "ssl.principal.mapping.rules"


class NoMatchingRuleError(KctlError):
    """No rule applies to a distinguished name; the connection is closed."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a distinguished name."""

    oid: str
    value: str | None
    """None if the value is not a character string."""
    encoded: bytes
    """The DER encoding of the value."""


def distinguished_name(names: Sequence[Sequence[Attribute]]) -> str:
    """The RFC 2253 text of a distinguished name, given in the order of the certificate, as Java prints it."""
    return ",".join("+".join(_attribute_text(attribute) for attribute in name) for name in reversed(names))


def _attribute_text(attribute: Attribute) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None or attribute.value is None:
        return f"{keyword or attribute.oid}=#{attribute.encoded.hex()}"
    escaped = "".join("\\" + char if char in _ESCAPED else char for char in attribute.value).replace("\0", "\\00")
    return f"{keyword}=" + _LEADING_OR_TRAILING.sub(lambda blanks: _escape_each(blanks[0]), escaped)


def _escape_each(text: str) -> str:
    return "".join("\\" + char for char in text)


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None for DEFAULT, which uses the distinguished name."""
    replacement: str = ""
    case: str = ""
    """L for lower case, U for upper case, empty for neither."""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(lambda found: java_replacement(self.replacement, found), name)
        return {"L": result.lower, "U": result.upper}.get(self.case, lambda: result)()


class PrincipalRules:
    """Parsed ssl.principal.mapping.rules; the first rule that matches decides."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError for an invalid rule."""
        self._text = text
        self._rules = tuple(_parsed(text))

    def user_name(self, name: str) -> str:
        """The user name for a distinguished name.  Raises NoMatchingRuleError."""
        for rule in self._rules:
            result = rule.apply(name)
            if result is not None:
                return result
        raise NoMatchingRuleError(f"no rule of {_PROPERTY} applies to {name}")


def _parsed(text: str) -> list[_Rule]:
    rules = []
    for found in _RULE_SPLITTER.finditer(text.strip()):
        parts = _RULE.match(found[1])
        if parts is None or parts.end() != len(found[1]):
            raise ConfigError(_PROPERTY, text, f"the rule {found[1]!r} is not RULE:pattern/replacement/[LU] or DEFAULT")
        if parts[1] is not None:
            rules.append(_Rule(None))
        elif parts[2] is not None:
            pattern = _compiled(parts[2], text)
            if problem := replacement_problem(parts[3], pattern):
                raise ConfigError(_PROPERTY, text, f"the rule {found[1]!r} {problem}: correct it")
            rules.append(_Rule(pattern, parts[3], parts[4]))
    return rules


def replacement_problem(replacement: str, pattern: re.Pattern[str]) -> str | None:
    """Why Java's Matcher.replaceAll would refuse the replacement, or Kafka the clients whose name it gives."""
    for found in _REFERENCE.finditer(replacement):
        if found[3] and found[3] not in pattern.groupindex:
            return f"has no group ${{{found[3]}}}"
        if found[2] and int(found[2]) and not pattern.groups:
            return f"has no group ${found[2]}"
    rest = _REFERENCE.sub("", replacement)
    return "has a $ without a group, or a backslash without a character" if "$" in rest or "\\" in rest else None


def java_pattern(pattern: str) -> re.Pattern[str]:
    """A regular expression of Java.  Raises re.error, also for what would mean something else in Python."""
    for found in _CHARACTER_CLASS.finditer(pattern):
        content = re.sub(r"\\.", "", found["content"] or "", flags=re.DOTALL)
        if "[" in content or "&&" in content:
            raise re.error("character classes inside of others, and intersections of them, are not supported")
    return re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern), re.ASCII)


def _compiled(pattern: str, text: str) -> re.Pattern[str]:
    try:
        return java_pattern(pattern)
    except re.error as error:
        raise ConfigError(_PROPERTY, text, f"{pattern!r} is not a regular expression ({error}): correct it") from None


def java_replacement(replacement: str, found: re.Match[str]) -> str:
    """Java's Matcher.appendReplacement: $1, ${name} and backslashes; a number of a missing group stays as it is.

    There has to be no `replacement_problem`.
    """

    def value(reference: re.Match[str]) -> str:
        escaped, digits, name = reference.groups()
        if escaped is not None:
            return str(escaped)
        if name is not None:
            return found[name] or ""
        # Java takes as many digits as there are groups for.
        length = 1
        while length < len(digits) and int(digits[: length + 1]) <= (found.re.groups):
            length += 1
        number = int(digits[:length])
        if number > found.re.groups:
            return "$" + digits
        return (found[number] or "") + digits[length:]

    return _REFERENCE.sub(value, replacement)
