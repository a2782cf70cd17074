"""Permissions of ZooKeeper's ACL schemes, one rule at a time."""

from __future__ import annotations

import pytest

from kctl.zookeeper.embedded import acl as acls
from kctl.zookeeper.embedded.acl import OPEN_ACL_UNSAFE, Acl, Id
from kctl.zookeeper.embedded.messages.codes import ADMIN, READ, WRITE, Code, KeeperError
from tests.rows import for_rows

HERE = Id("ip", "127.0.0.1")
ANN = acls.digest_identity(b"ann:secret")


def test_a_digest_is_the_sha1_of_user_and_password() -> None:
    assert Id("digest", "ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM=") == ANN


def test_auth_scheme_stands_for_the_identities_of_the_connection() -> None:
    assert acls.resolved([Acl(READ, Id("auth", ""))], [HERE, ANN]) == (Acl(READ, ANN),)


@for_rows(
    "wrong",
    [
        None,
        [],
        [Acl(READ, Id("auth", ""))],
        [Acl(READ, Id("world", "other"))],
        [Acl(READ, Id("digest", "nocolon"))],
        [Acl(READ, Id("digest", "a:"))],
        [Acl(READ, Id("digest", "a:b:c"))],
        [Acl(READ, Id("ip", "300.1.1.1"))],
        [Acl(READ, Id("ip", "1.2.3"))],
        [Acl(READ, Id("ip", "1.2.3.4/33"))],
        [Acl(READ, Id("sasl", "ann"))],
    ],
)
def test_an_acl_without_valid_entries_is_refused(wrong: list[Acl] | None) -> None:
    with pytest.raises(KeeperError) as refused:
        acls.resolved(wrong, [HERE])
    assert refused.value.code is Code.INVALID_ACL


def test_repetitions_are_dropped_and_the_open_acl_is_shared() -> None:
    anyone = Acl(31, Id("world", "anyone"))
    assert acls.resolved([anyone, anyone], []) is OPEN_ACL_UNSAFE


@pytest.mark.parametrize(
    ("network", "matches"),
    [("127.0.0.1", True), ("127.0.0.0/8", True), ("0.0.0.0/0", True), ("127.0.0.2", False), ("10.0.0.0/8", False)],
)
def test_addresses_match_their_networks(network: str, matches: bool) -> None:
    assert acls.allows((Acl(READ, Id("ip", network)),), READ, [HERE]) is matches


def test_permissions_are_bits() -> None:
    acl = (Acl(READ, Id("world", "anyone")), Acl(WRITE, ANN))
    assert acls.allows(acl, READ, [HERE])
    assert not acls.allows(acl, WRITE, [HERE])
    assert acls.allows(acl, WRITE, [HERE, ANN])
    with pytest.raises(KeeperError) as refused:
        acls.require(acl, ADMIN, [HERE, ANN])
    assert refused.value.code is Code.NO_AUTH


def test_digests_are_hidden_without_admin_permission() -> None:
    acl = (Acl(READ, Id("world", "anyone")), Acl(ADMIN, ANN))
    assert acls.visible(acl, [HERE])[1].id == Id("digest", "ann:x")
    assert acls.visible(acl, [HERE, ANN]) == acl
