"""Which profile applies to a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kctl.commands.profile_properties import has_common_address
from kctl.commands.profile_store import ENVIRONMENT_NAME, load_profiles, profiles_path
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.commands.profile_document import Profile


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
    if servers and not has_common_address(current, servers):
        note(f"the current profile '{current.name}' does not apply: other bootstrap servers are given")
        return None
    return current
