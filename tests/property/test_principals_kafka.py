"""Names of certificates, and the rules that map them, against Java and Kafka's SslPrincipalMapper."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kctl.errors import ConfigError
from kctl.security.principals import NoMatchingRuleError, PrincipalRules, subject_name
from tests.peers.apache_kafka import OLDEST_JUDGE, run_java_tool, why_not
from tests.peers.certificates import CertificateAuthority

pytestmark = pytest.mark.jvm

PROGRAM = Path(__file__).with_name("KafkaPrincipals.java")
SEED = 11
NAMES = 60

ATTRIBUTES = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.USER_ID,
    NameOID.DOMAIN_COMPONENT,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.TITLE,
    NameOID.GIVEN_NAME,
)
PIECES = ("Duke", "a b", " ", ",", "+", '"', "\\", "<", ">", "#", ";", "=", "é", "名", "/", "$1", "-", "x" * 20)
ASCII_ONLY = {NameOID.EMAIL_ADDRESS, NameOID.DOMAIN_COMPONENT}
PRINTABLE_PIECES = ("Duke", "a b", ",", "+", "/", "=", "-")
"""For attributes that are always a PrintableString."""
RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/",
    "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
    "RULE:.*CN=([^,]*),?.*/user-$1-$2/U , DEFAULT",
    r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2\/x/, RULE:.*O=(\w+).*/$1$11/L",
    r"RULE:^(?<all>.*)$/${all}/",
    "RULE:.*/x/",
    r"RULE:(CN|O)=.*/\$0$0/",
    "RULE:a/b/X",
    "RULE:a/b",
    "rule:a/b/",
    "DEFAULT,,DEFAULT",
    "RULE:(/b/",
)


def test_names_and_rules_give_what_kafka_gives(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    random = Random(SEED)
    authority = CertificateAuthority.create(tmp_path)
    cases = []
    for number in range(NAMES):
        certificate = authority.issue("user", subject=_name(random)).certificate.public_bytes(Encoding.DER)
        cases.append((RULES[number % len(RULES)] if number % 2 else "DEFAULT", certificate))
    lines = [f"{rules.encode().hex()} {certificate.hex()}" for rules, certificate in cases]
    completed = run_java_tool(OLDEST_JUDGE, str(PROGRAM), [], stdin="\n".join(lines) + "\n", timeout_s=120)
    expected = [bytes.fromhex(line).decode() for line in completed.stdout.split("\n")[:-1]]
    assert len(expected) == NAMES, completed.stderr
    assert [_user_name(*case) for case in cases] == expected
    assert len(set(expected)) > NAMES // 2


def _name(random: Random) -> x509.Name:
    """Some relative names, one of them sometimes with two attributes."""
    names = [x509.RelativeDistinguishedName([_attribute(random)]) for _ in range(random.randint(1, 4))]
    if random.random() < 0.3:
        first, second = random.sample([NameOID.COMMON_NAME, NameOID.USER_ID, NameOID.TITLE], 2)
        names.append(x509.RelativeDistinguishedName([_attribute(random, first), _attribute(random, second)]))
    return x509.Name(names)


def _attribute(random: Random, oid: x509.ObjectIdentifier | None = None) -> x509.NameAttribute[str]:
    oid = oid or random.choice(ATTRIBUTES)
    pieces = (
        PRINTABLE_PIECES
        if oid == NameOID.SERIAL_NUMBER
        else tuple(piece for piece in PIECES if piece.isascii() or oid not in ASCII_ONLY)
    )
    value = "".join(random.choices(pieces, k=random.randint(1, 3)))
    return x509.NameAttribute(oid, value)


def _user_name(rules: str, certificate: bytes) -> str:
    try:
        return PrincipalRules(rules).user_name(subject_name(certificate))
    except NoMatchingRuleError:
        return "! no rule"
    except ConfigError:
        return "! invalid"
