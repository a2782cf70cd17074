"""The line of `kctl acls add` that grants what a command was denied.  Pure.

Errors name the type of the resource and not the operation, so that it follows from the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kctl.errors import ErrorCode
from kctl.security.jaas import JaasError, parse_jaas

NAMES_MAX = 5
"""Resources in one line; further ones are left out."""
UNKNOWN_NAME = "NAME"
_OPTIONS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "--topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "--group",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "--transactional-id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "--cluster",
}
_FIELDS = {
    "--topic": ("topic", "topics", "source", "names", "name", "partitions"),
    "--group": ("group", "groups", "names", "name"),
    "--transactional-id": ("transactional_id", "names"),
}
"""Fields of rows and parameters of commands that name resources."""

_TOPIC, _GROUP, _ID, _CLUSTER = _OPTIONS
_DESCRIBE = ("describe",)
OPERATIONS: Mapping[str, Mapping[ErrorCode, Sequence[str]]] = {
    "consume": {_TOPIC: ("read",), _GROUP: ("read",)},
    "copy": {_TOPIC: ("read",)},
    "produce": {_TOPIC: ("write",), _ID: ("write",), _CLUSTER: ("idempotentwrite",)},
    "export": {_TOPIC: ("read",)},
    "elect": {_CLUSTER: ("alter",)},
    "topics create": {_TOPIC: ("create",), _CLUSTER: ("create",)},
    "topics alter": {_TOPIC: ("alter", "alterconfigs")},
    "topics delete": {_TOPIC: ("delete",)},
    "topics set-replication": {_CLUSTER: ("alter", "describe")},
    "records delete": {_TOPIC: ("delete",)},
    "groups delete": {_GROUP: ("delete",)},
    "groups delete-offsets": {_GROUP: ("delete",), _TOPIC: ("read",)},
    "groups reset-offsets": {_GROUP: ("read",), _TOPIC: ("read",)},
    "groups restore": {_GROUP: ("read",), _TOPIC: ("read",)},
    "groups import": {_GROUP: ("read",), _TOPIC: ("read",)},
    "groups lag": {_TOPIC: ("read", "describe")},
    "transactions describe-producers": {_TOPIC: ("read",)},
    "transactions abort": {_CLUSTER: ("alter",)},
    "transactions terminate": {_ID: ("write",)},
    "configs describe": {_TOPIC: ("describeconfigs",), _CLUSTER: ("describeconfigs",)},
    "configs alter": {_TOPIC: ("alterconfigs",), _CLUSTER: ("alterconfigs",)},
    "acls add": {_CLUSTER: ("alter",)},
    "acls remove": {_CLUSTER: ("alter",)},
    "acls apply": {_CLUSTER: ("alter", "describe")},
    "users create": {_CLUSTER: ("alter",)},
    "users alter": {_CLUSTER: ("alter",)},
    "users delete": {_CLUSTER: ("alter",)},
    "quotas describe": {_CLUSTER: ("describeconfigs",)},
    "quotas check": {_CLUSTER: ("describeconfigs",)},
    "quotas alter": {_CLUSTER: ("alterconfigs",)},
    "loggers list": {_CLUSTER: ("describeconfigs",)},
    "loggers set": {_CLUSTER: ("alterconfigs",)},
    "loggers reset": {_CLUSTER: ("alterconfigs",)},
    "features upgrade": {_CLUSTER: ("alter",)},
    "features downgrade": {_CLUSTER: ("alter",)},
    "reassign execute": {_CLUSTER: ("alter", "describe")},
    "reassign cancel": {_CLUSTER: ("alter", "describe")},
    "cluster maintenance": {_CLUSTER: ("alter", "describe")},
    "cluster add-broker": {_CLUSTER: ("alter", "describe")},
    "cluster remove-broker": {_CLUSTER: ("alter", "describe")},
}
"""The operations that a command needs beside Describe, by the error that says that one is missing."""


def grant_line(command: str, code: ErrorCode, names: Collection[str], principal: str | None) -> str | None:
    """Return the command line that an administrator executes; None for errors about other resources.

    `command` is the noun and the verb.
    """
    option = _OPTIONS.get(code)
    if option is None:
        return None
    operations = OPERATIONS.get(command, {}).get(code, _DESCRIBE)
    words = ["kctl", "acls", "add", "--allow", principal or f"User:{UNKNOWN_NAME}"]
    words += [word for operation in operations for word in ("--operation", operation)]
    if option == "--cluster":
        return shlex.join([*words, option])
    chosen = list(dict.fromkeys(names))[:NAMES_MAX] or [UNKNOWN_NAME]
    return shlex.join([*words, *(word for name in chosen for word in (option, name))])


def names_in(fields: Mapping[str, Any], code: ErrorCode) -> list[str]:
    """Return the names of denied resources in a row, or in the parameters of a command."""
    for field in _FIELDS.get(_OPTIONS.get(code, ""), ()):
        value = fields.get(field)
        texts = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
        names = [text.partition(":")[0] for text in texts if isinstance(text, str) and text]
        if names:
            return names
    return []


def principal_of(properties: Mapping[str, str]) -> str | None:
    """Return the principal that brokers see by default; None if the properties do not say it, as with certificates."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol == "PLAINTEXT":
        return "User:ANONYMOUS"
    if not protocol.startswith("SASL"):
        return None
    try:
        name = parse_jaas(properties.get("sasl.jaas.config", "")).options.get("username")
    except JaasError:
        return None
    return None if name is None else f"User:{name}"
