"""The client properties of a profile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kctl.client.settings import parse_servers
from kctl.commands.secret_files import read_properties
from kctl.commands.secret_references import resolved
from kctl.config.references import files_of

if TYPE_CHECKING:
    from kctl.commands.profile_document import Profile


def stored_properties(profile: Profile) -> dict[str, str]:
    """The properties of its file, overridden by those of the profile itself, whose references are not resolved.

    Raises UsageError.
    """
    given = read_properties(os.path.expanduser(profile.command_config)) if profile.command_config else {}
    return {**given, **profile.properties}


def resolved_properties(profile: Profile) -> dict[str, str]:
    """The properties, with secrets instead of references to them.  Raises UsageError."""
    own = {name: resolved(name, value) for name, value in profile.properties.items()}
    return {**stored_properties(profile), **own}


def secret_files(profile: Profile) -> tuple[str, ...]:
    """The files that references in the profile name."""
    return tuple(path for value in profile.properties.values() for path in files_of(value))


def has_common_address(profile: Profile, servers: str) -> bool:
    """Whether any of the bootstrap servers is one of the profile's.  Raises UsageError."""
    own = profile.bootstrap_servers or stored_properties(profile).get("bootstrap.servers", "")
    return bool(own and set(parse_servers(own)).intersection(parse_servers(servers)))
