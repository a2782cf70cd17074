"""Which profile applies to a command, and the client properties of a profile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kctl.client.settings import parse_servers
from kctl.commands.frame.profiles.profile_store import ENVIRONMENT_NAME, load_profiles, profiles_path
from kctl.commands.frame.profiles.secrets import read_properties, resolved
from kctl.config.properties import files_of
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.commands.frame.profiles.profile import Profile


# The client properties of a profile.


def stored_properties(profile: Profile) -> dict[str, str]:
    """Return the properties of its file, overridden by those of the profile itself, whose references are not resolved.

    Raises UsageError.
    """
    given = read_properties(os.path.expanduser(profile.command_config)) if profile.command_config else {}
    return {**given, **profile.properties}


def resolved_properties(profile: Profile) -> dict[str, str]:
    """Return the properties, with secrets instead of references to them.  Raises UsageError."""
    own = {name: resolved(name, value) for name, value in profile.properties.items()}
    return {**stored_properties(profile), **own}


def secret_files(profile: Profile) -> tuple[str, ...]:
    """Return the files that references in the profile name."""
    return tuple(path for value in profile.properties.values() for path in files_of(value))


def has_common_address(profile: Profile, servers: str) -> bool:
    """Return whether any of the bootstrap servers is one of the profile's.  Raises UsageError."""
    own = profile.bootstrap_servers or stored_properties(profile).get("bootstrap.servers", "")
    return bool(own and set(parse_servers(own)).intersection(parse_servers(servers)))


# Which profile applies to a command.


def profile_in_use(
    requested: str | None,
    environment: Mapping[str, str],
    *,
    other_servers: Callable[[], str | None],
    note: Callable[[str], None],
) -> Profile | None:
    """Return the profile that is named by --profile or KCTL_PROFILE, else the current one; None if there is none.

    The current profile does not apply if the command line or the environment names `other_servers` than it does: its
    credentials would be sent to another cluster.  Raises UsageError.
    """
    name = requested or environment.get(ENVIRONMENT_NAME)
    profiles = load_profiles(profiles_path(environment))
    if profiles is None:
        if name:
            raise UsageError(f"there is no profile '{name}', and no other; 'kctl profile add' stores one")
        return None
    if name:
        return profiles.named(name)
    if profiles.current is None:
        return None
    current = profiles.named(profiles.current)
    servers = other_servers()
    if servers and not has_common_address(current, servers):
        note(f"the current profile '{current.name}' does not apply: other bootstrap servers are given")
        return None
    return current
