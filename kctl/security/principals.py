"""The names of users: of client certificates, and of Kerberos principals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509

from kctl.errors import ConfigError, KctlError

# The user name of a client certificate: its distinguished name, mapped by ssl.principal.mapping.rules.
#
# Kafka: DefaultKafkaPrincipalBuilder and SslPrincipalMapper (2.8), KIP-371; Java: X500Principal.getName().


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
    """Return the RFC 2253 text of a distinguished name, given in the order of the certificate, as Java prints it."""
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
        """Raise ConfigError for an invalid rule."""
        self._text = text
        self._rules = tuple(_parsed(text))

    def user_name(self, name: str) -> str:
        """Return the user name for a distinguished name.  Raises NoMatchingRuleError."""
        for rule in self._rules:
            result = rule.apply(name)
            if result is not None:
                return result
        raise NoMatchingRuleError(f"no rule of {_PROPERTY} applies to {name}")


def _parsed(text: str) -> list[_Rule]:
    rules = []
    for match in _RULE_SPLITTER.finditer(text.strip()):
        parts = _RULE.match(match[1])
        if parts is None or parts.end() != len(match[1]):
            raise ConfigError(_PROPERTY, text, f"the rule {match[1]!r} is not RULE:pattern/replacement/[LU] or DEFAULT")
        if parts[1] is not None:
            rules.append(_Rule(None))
        elif parts[2] is not None:
            pattern = _compiled(parts[2], text)
            if problem := replacement_problem(parts[3], pattern):
                raise ConfigError(_PROPERTY, text, f"the rule {match[1]!r} {problem}: correct it")
            rules.append(_Rule(pattern, parts[3], parts[4]))
    return rules


def replacement_problem(replacement: str, pattern: re.Pattern[str]) -> str | None:
    """Return why Java's Matcher.replaceAll would refuse the replacement, or Kafka the clients whose name it gives."""
    for match in _REFERENCE.finditer(replacement):
        if match[3] and match[3] not in pattern.groupindex:
            return f"has no group ${{{match[3]}}}"
        if match[2] and int(match[2]) and not pattern.groups:
            return f"has no group ${match[2]}"
    rest = _REFERENCE.sub("", replacement)
    return "has a $ without a group, or a backslash without a character" if "$" in rest or "\\" in rest else None


def java_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression of Java.  Raises re.error, also for what would mean something else in Python."""
    for match in _CHARACTER_CLASS.finditer(pattern):
        content = re.sub(r"\\.", "", match["content"] or "", flags=re.DOTALL)
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


# The names in a certificate. Imports `cryptography`, which takes time: import it only where TLS is used.


def subject_name(certificate: bytes) -> str:
    """Return the subject of a DER encoded certificate in RFC 2253 form, as Java prints it.  Raises ValueError."""
    try:
        return name_text(x509.load_der_x509_certificate(certificate).subject)
    except (TypeError, x509.InvalidVersion) as error:  # TypeError: a name in a bit string.
        raise ValueError(f"the certificate cannot be read: {error}") from None


def name_text(name: x509.Name) -> str:
    """Return the RFC 2253 form of a name, as Java prints it."""
    return distinguished_name([[_attribute(entry) for entry in rdn] for rdn in name.rdns])


def _attribute(entry: x509.NameAttribute[str | bytes]) -> Attribute:
    value = entry.value if isinstance(entry.value, str) else None
    return Attribute(entry.oid.dotted_string, value, _encoded_value(entry))


def _encoded_value(entry: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the DER encoding of the value, the last part of Name, RelativeDistinguishedName, AttributeTypeAndValue."""
    encoded = x509.Name([entry]).public_bytes()
    for _ in range(3):
        encoded = encoded[_header_size(encoded) :]
    oid_size = encoded[1]
    return encoded[2 + oid_size :]


def _header_size(encoded: bytes) -> int:
    """Return the bytes of tag and length of a DER element."""
    return 2 if encoded[1] < 0x80 else 2 + (encoded[1] & 0x7F)


# User names of Kerberos principals: the rules of `sasl.kerberos.principal.to.local.rules`.
#
#     DEFAULT                                     alice@REALM and alice/host@REALM are alice, in the broker's own realm
#     RULE:[n:text](regexp)s/pattern/new/g/L      for principals of n parts: `text` with $0 the realm and $1 to $n the
#                                                 parts; if it matches regexp, the substitution's result is the name
#
# Kafka: KerberosShortNamer, KerberosRule (2.8).
#
# Pure.


_PRINCIPAL = re.compile(r"([^/@]+)(?:/([^/@]+))?(?:@([^/@]+))?")
_KERBEROS_RULE = re.compile(
    r"RULE:\[(?P<parts>[0-9]+):(?P<text>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9])")
_NOT_SIMPLE = re.compile("[/@]")


class KerberosNameError(KctlError):
    """A rule is malformed, or no rule names a principal."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; without a number of parts it is DEFAULT."""

    parts: int | None = None
    text: str = ""
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    new: str = ""
    is_repeated: bool = False
    case: str = ""


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules in order.  Raises KerberosNameError."""
    return tuple(_rule(text.strip()) for text in texts)


def user_name(principal: str, rules: Sequence[Rule], *, default_realm: str) -> str:
    """Return the name by the first rule that applies.  Raises KerberosNameError if none does."""
    match = _PRINCIPAL.fullmatch(principal)
    if match is None:
        raise KerberosNameError("the client's principal is malformed")
    name, host, realm = match.groups()
    if realm is None and host is None:
        return name
    parameters = [realm or "", name, *([host] if host else [])]
    for rule in rules:
        result = _applied(rule, parameters, default_realm)
        if result is not None:
            if _NOT_SIMPLE.search(result) or not result:
                raise KerberosNameError("a rule maps the client's principal to an empty name or one with '/' or '@'")
            return {"L": result.lower(), "U": result.upper()}.get(rule.case, result)
    raise KerberosNameError("no rule of sasl.kerberos.principal.to.local.rules applies to the client's principal")


def _rule(text: str) -> Rule:
    if text == "DEFAULT":
        return Rule()
    match = _KERBEROS_RULE.fullmatch(text)
    if match is None:
        raise KerberosNameError(f"'{text}' is neither DEFAULT nor RULE:[n:text](regexp)s/pattern/new/")
    try:
        rule = Rule(
            parts=int(match["parts"]),
            text=match["text"],
            match=None if match["match"] is None else java_pattern(match["match"]),
            pattern=None if match["pattern"] is None else java_pattern(match["pattern"]),
            new=match["new"] or "",
            is_repeated=match["all"] is not None,
            case=match["case"] or "",
        )
    except re.error as error:
        raise KerberosNameError(f"'{text}' has an invalid regular expression: {error}") from None
    if rule.pattern is not None and _has_unknown_groups(rule.new, rule.pattern):
        raise KerberosNameError(f"'{text}' refers to a group that its pattern does not have")
    return rule


def _has_unknown_groups(replacement: str, pattern: re.Pattern[str]) -> bool:
    numbers = map(int, _PARAMETER.findall(replacement))
    return any(number > pattern.groups for number in numbers) or replacement_problem(replacement, pattern) is not None


def _applied(rule: Rule, parameters: Sequence[str], default_realm: str) -> str | None:
    """Return the name that the rule gives; None if it does not apply."""
    if rule.parts is None:
        return parameters[1] if parameters[0] == default_realm else None
    if len(parameters) - 1 != rule.parts:
        return None
    base = _PARAMETER.sub(lambda found: _parameter(parameters, int(found[1])), rule.text)
    if rule.match is not None and rule.match.fullmatch(base) is None:
        return None
    if rule.pattern is None:
        return base
    return rule.pattern.sub(lambda found: java_replacement(rule.new, found), base, count=0 if rule.is_repeated else 1)


def _parameter(parameters: Sequence[str], index: int) -> str:
    if index >= len(parameters):
        raise KerberosNameError(f"a rule refers to part {index} of a principal that has fewer")
    return parameters[index]
