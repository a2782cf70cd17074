"""Which profile applies to a command, and its client properties."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kctl.commands.profile_store import load_profiles, profiles_path
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.commands.profile_document import Profile

ENVIRONMENT_NAME = "KCTL_PROFILE"


def profile_in_use(
    requested: str | None,
    environment: Mapping[str, str],
    *,
    other_servers: Callable[[], str | None],
    note: Callable[[str], None],
) -> Profile | None:
    """The profile that is named by --profile or KCTL_PROFILE, else the current one; None if there is none.

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
    if servers and not _have_common_address(servers, _servers_of(current)):
        note(f"the current profile '{current.name}' does not apply: other bootstrap servers are given")
        return None
    return current


def selected_name(requested: str | None, environment: Mapping[str, str]) -> str | None:
    """The profile that --profile or KCTL_PROFILE names, else the current one, whether it applies or not.

    Raises UsageError for an invalid file of profiles.
    """
    name = requested or environment.get(ENVIRONMENT_NAME)
    if name:
        return name
    profiles = load_profiles(profiles_path(environment))
    return None if profiles is None else profiles.current


def stored_properties(profile: Profile) -> dict[str, str]:
    """The client properties of a profile with unresolved references; those of the profile itself override its file's.

    Raises UsageError.
    """
    from kctl.commands.secret_files import read_properties  # noqa: PLC0415 - only with a profile

    given = read_properties(os.path.expanduser(profile.command_config)) if profile.command_config else {}
    return {**given, **profile.properties}


def resolved_properties(profile: Profile) -> dict[str, str]:
    """The client properties of a profile, with secrets instead of references to them.  Raises UsageError."""
    from kctl.commands.secret_references import resolved  # noqa: PLC0415 - only with a profile

    own = {name: resolved(name, value) for name, value in profile.properties.items()}
    return {**stored_properties(profile), **own}


def secret_files(profile: Profile) -> tuple[str, ...]:
    """The files that references in a profile name."""
    from kctl.config.references import files_of  # noqa: PLC0415 - only with a profile

    return tuple(path for value in profile.properties.values() for path in files_of(value))


def _servers_of(profile: Profile) -> str:
    return profile.bootstrap_servers or stored_properties(profile).get("bootstrap.servers", "")


def _have_common_address(some: str, others: str) -> bool:
    from kctl.client.settings import parse_servers  # noqa: PLC0415 - only with a profile

    return bool(others and set(parse_servers(some)).intersection(parse_servers(others)))
