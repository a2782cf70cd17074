"""Access control lists with the schemes world, auth, digest and ip.

The identities of a connection are ("ip", its address), and ("digest", "user:hash") for each password that it sent.  The
scheme `auth` is used in requests only; it means the identities of the connection.  PrepRequestProcessor.fixupACL,
ZooKeeperServer.checkACL.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from kctl.zookeeper.embedded.messages.codes import ADMIN, READ, Code, KeeperError


class Id(NamedTuple):
    """A scheme and an identity of that scheme."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """The permissions (bits) of one id."""

    perms: int
    id: Id


Acls = tuple[Acl, ...]

ALL_PERMISSIONS = 31
ANYONE = Id("world", "anyone")
OPEN_ACL_UNSAFE: Acls = (Acl(ALL_PERMISSIONS, ANYONE),)
READ_ACL_UNSAFE: Acls = (Acl(READ, ANYONE),)


def digest_identity(credentials: bytes) -> Id:
    """Return the identity of `user:password` in ACLs: user:base64(sha1(user:password))."""
    user = credentials.partition(b":")[0].decode(errors="replace")
    hashed = hashlib.sha1(credentials).digest()  # noqa: S324   the protocol's choice
    return Id("digest", f"{user}:{base64.b64encode(hashed).decode()}")


def named(identity: Id) -> Id:
    """Return an identity as whoAmI shows it: a digest without the hash."""
    return Id("digest", identity.id.partition(":")[0]) if identity.scheme == "digest" else identity


def resolved(acls: Iterable[Acl] | None, identities: Iterable[Id]) -> Acls:
    """Return the ACL to store for the ACL of a request, without duplicates.  Raises KeeperError(INVALID_ACL)."""
    result: dict[Acl, None] = {}
    for acl in acls or ():
        if acl.id.scheme == "auth":
            proven = [identity for identity in identities if identity.scheme != "ip"]
            if not proven:
                raise KeeperError(Code.INVALID_ACL)
            result.update((Acl(acl.perms, identity), None) for identity in proven)
        elif acl.id == ANYONE or _is_valid(acl.id):
            result[acl] = None
        else:
            raise KeeperError(Code.INVALID_ACL)
    if not result:
        raise KeeperError(Code.INVALID_ACL)
    stored = tuple(result)
    return OPEN_ACL_UNSAFE if stored == OPEN_ACL_UNSAFE else stored


def require(acls: Acls, permission: int, identities: Iterable[Id]) -> None:
    """Raise KeeperError(NO_AUTH) unless an entry grants one of the permission's bits to one of the identities."""
    if not allows(acls, permission, identities):
        raise KeeperError(Code.NO_AUTH)


def allows(acls: Acls, permission: int, identities: Iterable[Id]) -> bool:
    """Return True if an entry grants one of the permission's bits to one of the identities."""
    for acl in acls:
        if acl.perms & permission and (acl.id == ANYONE or any(_matches(identity, acl.id) for identity in identities)):
            return True
    return not acls


def visible(acls: Acls, identities: Iterable[Id]) -> Acls:
    """Return the ACL for getACL: without ADMIN, password hashes are hidden.  NO_AUTH without READ and ADMIN."""
    require(acls, READ | ADMIN, identities)
    if allows(acls, ADMIN, identities):
        return acls
    return tuple(_masked(acl) for acl in acls)


def _masked(acl: Acl) -> Acl:
    if acl.id.scheme != "digest":
        return acl
    return Acl(acl.perms, Id("digest", acl.id.id.partition(":")[0] + ":x"))


def _is_valid(identity: Id) -> bool:
    match identity.scheme:
        case "digest":
            _, colon, rest = identity.id.partition(":")
            return bool(colon and rest and ":" not in rest)
        case "ip":
            return _network(identity.id) is not None
    return False


def _matches(identity: Id, requested: Id) -> bool:
    if identity.scheme != requested.scheme:
        return False
    if identity.scheme != "ip":
        return identity.id == requested.id
    address, network = _network(identity.id), _network(requested.id)
    return (
        address is not None
        and network is not None
        and address[0] >> (32 - network[1]) == network[0] >> (32 - network[1])
    )


def _network(text: str) -> tuple[int, int] | None:
    """Parse `a.b.c.d[/bits]` into (address, bits)."""
    address, slash, bits = text.partition("/")
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and int(part) <= 255 for part in parts):
        return None
    if slash and not (bits.isdecimal() and int(bits) <= 32):
        return None
    return int.from_bytes(bytes(int(part) for part in parts)), int(bits) if slash else 32
