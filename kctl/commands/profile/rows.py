"""The rows of the verbs of `kctl profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.profile.secrets import shown
from kctl.console import Column

if TYPE_CHECKING:
    from kctl.commands.profile_document import Profile, Profiles

COLUMNS = (
    Column("profile"),
    Column("current"),
    Column("bootstrap_servers", wraps=True),
    Column("cluster_id"),
    Column("protected"),
    Column("read_only"),
)


class ProfileRow(NamedTuple):
    """A profile without secrets."""

    profile: str
    current: bool
    bootstrap_servers: str | None
    """None if only the file has them."""
    command_config: str | None
    properties: dict[str, str]
    cluster_id: str | None
    protected: bool
    read_only: bool
    format: str | None
    timeout: str | None


def profile_row(profile: Profile, profiles: Profiles) -> ProfileRow:
    """A profile, in which the values of secrets are hidden."""
    return ProfileRow(
        profile=profile.name,
        current=profile.name == profiles.current,
        bootstrap_servers=profile.bootstrap_servers,
        command_config=profile.command_config,
        properties={name: shown(name, value) for name, value in sorted(profile.properties.items())},
        cluster_id=profile.cluster_id,
        protected=profile.protected,
        read_only=profile.read_only,
        format=profile.format,
        timeout=profile.timeout,
    )
