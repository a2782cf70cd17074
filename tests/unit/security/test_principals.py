"""Distinguished names and mapping rules; tests/property/test_principals_kafka.py compares them with Java and Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kctl.errors import ConfigError
from kctl.security.principals import Attribute, NoMatchingRuleError, PrincipalRules, distinguished_name, subject_name
from tests.peers.certificates import CertificateAuthority
from tests.rows import for_rows

NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@for_rows(
    "rules, user",
    [
        ("DEFAULT", NAME),
        ("", None),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@$2/U", "DUKE@$2"),
        ("RULE:^CN=(.*?),OU=Admins.*$/$1/, DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=Admins.*$/$1/", None),
        (r"RULE:^CN=(?<user>.*?),.*$/${user}\/x/", "Duke/x"),
        ("RULE:.*/x/", "xx"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(rules: str, user: str | None) -> None:
    if user is None:
        with pytest.raises(NoMatchingRuleError):
            PrincipalRules(rules).user_name(NAME)
    else:
        assert PrincipalRules(rules).user_name(NAME) == user


@for_rows(
    "rules",
    [
        *("default", "RULE:", "RULE:a", "RULE:/x", "RULE:a/b/X", "RULE:(/$1/", "RULE:a/${x}/"),
        # Kafka refuses the clients whose name such a rule would give.
        *("RULE:CN=.*/$1/", "RULE:CN=(.*)/$/", "RULE:CN=(.*)/$ 1/", "RULE:CN=(.*)/${1}/"),
        # Python gives them another meaning.
        *("RULE:CN=[a-z&&[^b]]+/x/", "RULE:CN=[a[bc]]/x/", "RULE:CN=[[:alpha:]]+/x/"),
    ],
)
def test_an_invalid_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl.principal.mapping.rules"):
        PrincipalRules(rules)


def test_brackets_and_ampersands_may_be_escaped_in_a_rule() -> None:
    assert PrincipalRules(r"RULE:CN=[^\[\]&]*\[(.*)\]&&.*/$1/").user_name("CN=a[b]&&c") == "b"


def test_a_distinguished_name_is_reversed_and_escaped() -> None:
    country = Attribute("2.5.4.6", "US", b"")
    user = Attribute("2.5.4.3", ' a,b+"c" ', b"")
    unit = Attribute("2.5.4.11", "é", b"")
    mail = Attribute("1.2.840.113549.1.9.1", "a@b", b"\x16\x03a@b")
    text = distinguished_name([[country], [unit, user], [mail]])
    assert text == '1.2.840.113549.1.9.1=#1603614062,OU=é+CN=\\ a\\,b\\+\\"c\\"\\ ,C=US'


def test_a_certificate_whose_subject_has_a_name_in_a_bit_string_is_refused(tmp_path: Path) -> None:
    text = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "\0alice")])
    certificate = CertificateAuthority.create(tmp_path).issue("alice", subject=text).certificate
    encoded = certificate.public_bytes(Encoding.DER)
    assert subject_name(encoded) == "CN=\\00alice"
    with pytest.raises(ValueError, match="cannot be read"):
        subject_name(encoded.replace(b"\x0c\x06\0alice", b"\x03\x06\0alice"))
