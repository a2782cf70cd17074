"""User names of Kerberos principals: the rules of `sasl.kerberos.principal.to.local.rules`.

    DEFAULT                                     alice@REALM and alice/host@REALM are alice, in the broker's own realm
    RULE:[n:text](regexp)s/pattern/new/g/L      for principals of n parts: `text` with $0 the realm and $1 to $n the
                                                parts; if it matches regexp, the substitution's result is the name

Kafka: KerberosShortNamer, KerberosRule (2.8).

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kctl.errors import KctlError
from kctl.security.principals import java_pattern, java_replacement, replacement_problem

_PRINCIPAL = re.compile(r"([^/@]+)(?:/([^/@]+))?(?:@([^/@]+))?")
_RULE = re.compile(
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
    """The rules in order.  Raises KerberosNameError."""
    return tuple(_rule(text.strip()) for text in texts)


def user_name(principal: str, rules: Sequence[Rule], *, default_realm: str) -> str:
    """The name by the first rule that applies.  Raises KerberosNameError if none does."""
    found = _PRINCIPAL.fullmatch(principal)
    if found is None:
        raise KerberosNameError("the client's principal is malformed")
    name, host, realm = found.groups()
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
    found = _RULE.fullmatch(text)
    if found is None:
        raise KerberosNameError(f"'{text}' is neither DEFAULT nor RULE:[n:text](regexp)s/pattern/new/")
    try:
        rule = Rule(
            parts=int(found["parts"]),
            text=found["text"],
            match=None if found["match"] is None else java_pattern(found["match"]),
            pattern=None if found["pattern"] is None else java_pattern(found["pattern"]),
            new=found["new"] or "",
            is_repeated=found["all"] is not None,
            case=found["case"] or "",
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
    """The name that the rule gives; None if it does not apply."""
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
