"""Names of Kerberos principals, by the rules and examples of Kafka's KerberosShortNamer and KerberosRule."""

from __future__ import annotations

import pytest

from kctl.security.principals import KerberosNameError, parse_rules, user_name
from tests.rows import for_rows


@for_rows(
    "rules, principal, name",
    [
        (["DEFAULT"], "alice@REALM", "alice"),
        (["DEFAULT"], "kafka/host@REALM", "kafka"),
        (["DEFAULT"], "alice", "alice"),
        (["RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g", "DEFAULT"], "App.service-name@REALM", "service-name"),
        (["RULE:[2:$1]", "DEFAULT"], "zookeeper/host@OTHER", "zookeeper"),
        (["RULE:[2:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "svc/host@OTHER", "svc"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*/-other/"], "bob@OTHER", "bob-other"),
        (["RULE:[1:$1]/L"], "User@REALM", "user"),
        (["RULE:[1:$1]/U"], "User@REALM", "USER"),
        (["RULE:[1:$1]s/e/E/"], "eve@REALM", "Eve"),
        (["RULE:[1:$1]s/e/E/g"], "eve@REALM", "EvE"),
        (["RULE:[1:$1]s/(.+)/$1-x/L"], "Eve@REALM", "eve-x"),
        (["RULE:[1:$1]s/.+/$0-x/"], "eve@REALM", "eve-x"),
        (["RULE:[1:$1]s/(.+)/$12\\$/"], "eve@REALM", "eve2$"),
    ],
)
def test_rules_map_principals_to_names(rules: list[str], principal: str, name: str) -> None:
    assert user_name(principal, parse_rules(rules), default_realm="REALM") == name


@for_rows(
    "rules, principal",
    [
        (["DEFAULT"], "alice@OTHER"),
        (["RULE:[2:$1]"], "alice@REALM"),
        (["RULE:[1:$1](bob)"], "alice@REALM"),
        (["RULE:[1:$1@$0]"], "alice@REALM"),
        (["RULE:[1:$1]s/.+//"], "alice@REALM"),
        (["RULE:[1:$2]"], "alice@REALM"),
        (["DEFAULT"], "a/b/c@REALM"),
        (["DEFAULT"], ""),
        (["DEFAULT"], "@REALM"),
    ],
)
def test_principals_that_no_rule_matches_are_refused(rules: list[str], principal: str) -> None:
    with pytest.raises(KerberosNameError):
        user_name(principal, parse_rules(rules), default_realm="REALM")


@for_rows(
    "rule",
    [
        "",
        "default",
        "RULE",
        "RULE:[x:$1]",
        "RULE:[1:$1](((",
        "RULE:[1:$1]s/a/b",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/${x}/",
        "RULE:[1:$1]([a-z&&[^b]]*)",
        "RULE:[1:$1]s/[a[b]]/x/",
    ],
)
def test_malformed_rules_are_refused(rule: str) -> None:
    with pytest.raises(KerberosNameError):
        parse_rules([rule])
