"""The znodes of ACLs and of delegation tokens: paths and content."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kctl.limits import ACL_ZNODE_BYTES_MAX, Subject, bound
from kctl.output.documents import parse_json
from kctl.security.acls import (
    STORED_TYPES,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    binding_problem,
    principal_problem,
)
from kctl.zookeeper import paths
from kctl.zookeeper.broker_znodes import encode_json

ACL_NAME_CHARACTERS_MAX = bound(
    Subject.ACLS,
    "resource name, principal or host in an ACL",
    1_024,
    "characters",
    on_excess="INVALID_REQUEST for the ACL",
)


# The znodes of ACLs: paths and content. Kafka: ZkAclStore, ZkAclChangeStore, AclEntry.
#
# Literal patterns are in /kafka-acl/<Type>/<name>, prefixed ones in /kafka-acl-extended/prefixed/<Type>/<name>. A
# change is announced by a sequential znode below /kafka-acl-changes or /kafka-acl-extended-changes.


LITERAL_STORE = "/kafka-acl"
PREFIXED_STORE = "/kafka-acl-extended/prefixed"
STORES = {PatternType.LITERAL: LITERAL_STORE, PatternType.PREFIXED: PREFIXED_STORE}

LITERAL_CHANGES = "/kafka-acl-changes"
PREFIXED_CHANGES = "/kafka-acl-extended-changes"
CHANGES = (LITERAL_CHANGES, PREFIXED_CHANGES)
_CHANGE_PREFIX = "acl_changes_"

PATHS_AT_START = (
    *(f"{store}/{kind.label}" for store in STORES.values() for kind in STORED_TYPES),
    *CHANGES,
)
"""Created by every broker with an authorizer.  KafkaZkClient.createAclPaths."""

_VERSION = 1


def pattern_path(pattern: ResourcePattern) -> str:
    """Return the znode of the ACLs of a pattern.  The name must have been checked by `name_problem`."""
    return f"{STORES[pattern.pattern_type]}/{pattern.type.label}/{pattern.name}"


def name_problem(name: str) -> str | None:
    """Return why this name cannot be that of a znode; None if it can."""
    if not name or name in {".", ".."} or "/" in name:
        return "ACLs are stored in ZooKeeper by resource name, which cannot be empty, '.' or '..' or contain '/'"
    if len(name) > ACL_NAME_CHARACTERS_MAX:
        return f"the resource name has more than {ACL_NAME_CHARACTERS_MAX} characters"
    if any(_is_forbidden(character) for character in name):
        return "the resource name has characters that ZooKeeper does not accept"
    return None


def _is_forbidden(character: str) -> bool:
    """Return the characters that PathUtils.validatePath of ZooKeeper refuses."""
    return (
        character <= "\x1f"
        or "\x7f" <= character <= "\x9f"
        or "\ud800" <= character <= "\uf8ff"
        or character >= "\ufff0"
    )


def stored_problem(binding: AclBinding) -> str | None:
    """Return why this ACL cannot be stored; None if it can."""
    pattern, entry = binding
    problem = binding_problem(binding) or name_problem(pattern.name)
    if problem is not None:
        return problem
    if pattern.type not in STORED_TYPES:
        return f"ACLs on resources of type {pattern.type.label} need Kafka 3.3 or newer"
    if entry.operation in SUPPORTED_OPERATIONS[ResourceType.USER]:
        return f"ACLs for the operation {entry.operation.label} need Kafka 3.3 or newer"
    if max(len(entry.principal), len(entry.host)) > ACL_NAME_CHARACTERS_MAX:
        return f"the principal or the host has more than {ACL_NAME_CHARACTERS_MAX} characters"
    return None


def encode_entries(entries: Iterable[AclEntry]) -> bytes:
    """Return the content of a pattern's znode."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.label,
            "operation": entry.operation.label,
            "host": entry.host,
        }
        for entry in entries
    ]
    return encode_json({"version": _VERSION, "acls": acls})


def decode_entries(path: str, data: bytes) -> tuple[AclEntry, ...]:
    """Return the ACLs of a pattern; none for an empty znode.  Raises ValueError with the path."""
    if not data:
        return ()
    try:
        if len(data) > ACL_ZNODE_BYTES_MAX:
            raise ValueError(f"more than {ACL_ZNODE_BYTES_MAX} bytes")
        znode = parse_json(data)
        if not isinstance(znode, dict) or znode["version"] != _VERSION:
            raise ValueError("not an object of version 1")
        return tuple(dict.fromkeys(_parse_entry(entry) for entry in znode["acls"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: invalid ACLs: {type(error).__name__}: {error}") from error


def _parse_entry(znode: dict[str, Any]) -> AclEntry:
    principal, host = znode["principal"], znode["host"]
    if not isinstance(principal, str) or not isinstance(host, str):
        raise ValueError("principal and host are strings")
    problem = principal_problem(principal)
    if problem is not None:
        raise ValueError(problem)
    operation, permission = Operation.of_label(znode["operation"]), Permission.of_label(znode["permissionType"])
    if operation is Operation.ANY or permission is Permission.ANY:
        raise ValueError("ANY is for filters")
    return AclEntry(principal, host, operation, permission)


def change_path(pattern: ResourcePattern) -> str:
    """Return the path of a change notification, without its number."""
    changes = LITERAL_CHANGES if pattern.pattern_type is PatternType.LITERAL else PREFIXED_CHANGES
    return f"{changes}/{_CHANGE_PREFIX}"


def encode_change(pattern: ResourcePattern) -> bytes:
    """Return the content of a change notification: text for a literal pattern, JSON for a prefixed one."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    change = {
        "version": _VERSION,
        "resourceType": pattern.type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return encode_json(change)


def decode_change(path: str, data: bytes) -> ResourcePattern:
    """Return the pattern that changed.  Raises ValueError with the path."""
    try:
        if path.startswith(f"{LITERAL_CHANGES}/"):
            kind, separator, name = data.decode().partition(":")
            if not separator:
                raise ValueError("expected TYPE:name")
            pattern = ResourcePattern(ResourceType.of_label(kind), name)
        else:
            change = parse_json(data)
            if not isinstance(change, dict) or change["version"] != _VERSION:
                raise ValueError("not an object of version 1")
            shape = PatternType.of_label(change["patternType"])
            pattern = ResourcePattern(ResourceType.of_label(change["resourceType"]), change["name"], shape)
        if pattern.pattern_type not in STORES or pattern.type is ResourceType.ANY:
            raise ValueError("not a pattern of a resource")
        problem = name_problem(pattern.name)
        if problem is not None:
            raise ValueError(problem)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: invalid ACL change: {error}") from error
    return pattern


# The znodes of delegation tokens. KIP-48; Kafka: DelegationTokenManager.toJsonCompatibleMap, fromBytes (2.8).
#
# Kafka 2.8 writes and reads version 1; later brokers write version 3 with the requester of the token, and read all.


_VERSIONS_READ = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class TokenZnode:
    """The content of /delegation_token/tokens/ID.  Principals are `Type:name`, times are wall-clock times in ms."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int


def encode_token(token: TokenZnode) -> bytes:
    """Return the content of the znode."""
    znode = {
        "version": _VERSION,
        "owner": paths.sanitize(token.owner),
        "renewers": [paths.sanitize(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(znode, separators=(",", ":")).encode()


def decode_token(path: str, data: bytes) -> TokenZnode:
    """Read the content of the znode.  Raises ValueError with the path."""
    try:
        znode: Any = parse_json(data)
        if znode["version"] not in _VERSIONS_READ:
            raise ValueError("its version is unknown")
        token = TokenZnode(
            token_id=str(znode["tokenId"]),
            owner=_principal(znode["owner"]),
            renewers=tuple(_principal(renewer) for renewer in znode["renewers"]),
            issue_ms=int(znode["issueTimestamp"]),
            max_ms=int(znode["maxTimestamp"]),
            expiry_ms=int(znode["expiryTimestamp"]),
        )
        if paths.delegation_token(token.token_id) != path:
            raise ValueError("its token id is not its name")
    except KeyError as missing:
        raise ValueError(f"znode {path} has no {missing}") from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"znode {path} is not a delegation token: {error}") from None
    return token


def _principal(element: str) -> str:
    principal = paths.desanitize(element)
    kind, separator, name = principal.partition(":")
    if not (kind and separator and name):
        raise ValueError("a principal is not written as Type:name")
    return principal
