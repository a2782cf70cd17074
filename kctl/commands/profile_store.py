"""The file with the profiles of a user: `$XDG_CONFIG_HOME/kctl/profiles.json`, by default in `~/.config`.

The modules for its contents are imported only if the file exists, so that commands start as fast without profiles.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.commands.profile_document import Profiles


def profiles_path(environment: Mapping[str, str]) -> str:
    """The path of the file, which may not exist."""
    folder = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "kctl", "profiles.json")


def load_profiles(path: str) -> Profiles | None:
    """All profiles; None if the file does not exist.  Raises UsageError if it is invalid or cannot be read."""
    if not os.path.lexists(path):
        return None
    from kctl.commands.profile_document import parse_profiles  # noqa: PLC0415 - only where a profile exists
    from kctl.input_files import read_regular  # noqa: PLC0415 - same

    try:
        return parse_profiles(read_regular(path), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def change_profiles(path: str, change: Callable[[Profiles], Profiles]) -> Profiles:
    """Replaces the profiles by `change` of them, under a lock, and returns the new ones.  Raises UsageError."""
    import fcntl  # noqa: PLC0415 - only `kctl profile` changes the file
    from pathlib import Path  # noqa: PLC0415 - same

    from kctl.commands.profile_document import Profiles, format_profiles  # noqa: PLC0415 - same
    from kctl.private_files import replace_private  # noqa: PLC0415 - same

    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(target.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = change(load_profiles(path) or Profiles())
        replace_private(target, format_profiles(changed))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    finally:
        os.close(lock)
    return changed
