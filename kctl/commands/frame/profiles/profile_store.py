"""The file with the profiles of a user: `$XDG_CONFIG_HOME/kctl/profiles.json`, by default in `~/.config`.

The modules for its contents are imported only if the file exists, so that commands start as fast without profiles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.commands.frame.profiles.profile import Profiles


ENVIRONMENT_NAME = "KCTL_PROFILE"


def profiles_path(environment: Mapping[str, str]) -> str:
    """Return the path of the file, which may not exist."""
    folder = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "kctl", "profiles.json")


def load_profiles(path: str) -> Profiles | None:
    """Return all profiles; None if the file does not exist.  Raises UsageError if it is invalid or cannot be read."""
    if not os.path.lexists(path):
        return None
    from kctl.commands.frame.profiles.profile import read_profiles  # noqa: PLC0415 - only where a profile exists

    return read_profiles(path)
