"""The log of decisions."""

from __future__ import annotations

import pytest

from kctl.limits import AUDITED_DENIALS_MAX
from kctl.security.acls import Operation, ResourceType
from kctl.security.authorization import Client
from kctl.server.authorization.access import java_address
from kctl.server.authorization.audit import DenialCounts, Question


def question(name: str) -> Question:
    return Question(Client("User:bob", "1.2.3.4"), Operation.WRITE, ResourceType.TOPIC, name, "produce")


def test_text_of_a_decision_has_principal_host_and_operation() -> None:
    assert str(question("a")) == ("principal=User:bob host=1.2.3.4 operation=Write resource=Topic:a request=produce")


def test_repeated_denials_are_counted() -> None:
    counts = DenialCounts()
    assert [counts.note(question(name), 0) for name in "aabaa"] == [True, False, True, False, False]
    assert not counts.is_over(9_999)
    assert counts.is_over(10_000)
    assert counts.take() == ([(question("a"), 3)], 0)
    assert counts.note(question("a"), 10_001)


def test_a_flood_of_different_denials_is_counted_in_one_number() -> None:
    counts = DenialCounts()
    logged = sum(counts.note(question(str(number)), 0) for number in range(10 * AUDITED_DENIALS_MAX))
    assert logged == AUDITED_DENIALS_MAX
    assert counts.take() == ([], 9 * AUDITED_DENIALS_MAX)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("/127.0.0.1", "127.0.0.1"),
        ("/::1", "0:0:0:0:0:0:0:1"),
        ("/fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("/::ffff:10.0.0.1", "10.0.0.1"),
        ("/2001:DB8::a", "2001:db8:0:0:0:0:0:a"),
        ("/somewhere", "somewhere"),
    ],
)
def test_addresses_are_those_that_java_prints(peer: str, address: str) -> None:
    assert java_address(peer) == address
