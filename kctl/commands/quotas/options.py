"""Options that several verbs of `kctl quotas` share, and the entities that they select."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.errors import UsageError
from kctl.security.quotas import EntityType

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="The user.")]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="Users without a quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="The client id.")]
DefaultClientId = Annotated[bool, typer.Option("--default-client-id", help="Client ids without a quota of their own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The IP address.")]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="IP addresses without a quota of their own.")]


def named_entity(
    *,
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> dict[EntityType, str | None]:
    """The parts of the entity in the options, None for a default.  Raises UsageError for invalid combinations."""
    parts: dict[EntityType, str | None] = {}
    for kind, option, name, is_default in (
        (EntityType.USER, "user", user, default_user),
        (EntityType.CLIENT_ID, "client-id", client_id, default_client_id),
        (EntityType.IP, "ip", ip, default_ip),
    ):
        if name is not None and is_default:
            raise UsageError(f"--{option} and --default-{option} cannot be combined")
        if name == "":
            raise UsageError(f"--{option} must not be empty; --default-{option} names the default")
        if name is not None or is_default:
            parts[kind] = name
    if EntityType.IP in parts and len(parts) > 1:
        raise UsageError("an IP address cannot be combined with a user or a client id")
    return parts
