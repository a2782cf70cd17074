"""Reads and changes the file with the profiles of a user."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from kctl.commands.profile_document import Profiles, format_profiles, parse_profiles
from kctl.errors import UsageError
from kctl.input_files import read_regular
from kctl.private_files import replace_private


def read_profiles(path: str) -> Profiles:
    """All profiles.  Raises UsageError if the file is invalid or cannot be read."""
    try:
        return parse_profiles(read_regular(path), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def change_profiles(path: str, change: Callable[[Profiles], Profiles]) -> Profiles:
    """Replaces the profiles by `change` of them, under a lock, and returns the new ones.  Raises UsageError."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(target.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = change(read_profiles(path) if os.path.lexists(path) else Profiles())
        replace_private(target, format_profiles(changed))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    finally:
        os.close(lock)
    return changed
