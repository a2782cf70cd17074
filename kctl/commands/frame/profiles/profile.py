"""Profiles, and the JSON document in which they are stored.  Pure.

    {"version": 1, "current": "dev", "profiles": {"dev": {"bootstrap_servers": "127.0.0.1:9092"},
                                                  "prod": {"command_config": "/etc/kafka/prod.properties",
                                                           "cluster_id": "5Qm1...", "protected": true}}}

A document with an unknown field is refused, because it may be a restriction that a later version of kctl has added.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.system.user_files import read_regular, replace_private

PROFILES_MAX = bound(
    Subject.NAMED_FILES,
    "profiles of one user",
    1_000,
    "profiles",
    on_excess="the command that adds another one fails",
)


_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FORMATS = ("table", "plain", "json", "jsonl", "yaml", "csv")
_TEXTS = ("bootstrap_servers", "command_config", "cluster_id", "format", "timeout")
_FLAGS = ("protected", "read_only")


class Profile(NamedTuple):
    """How to connect to one cluster, and what is allowed there."""

    name: str
    bootstrap_servers: str | None = None
    command_config: str | None = None
    """Path of a properties file."""
    properties: Mapping[str, str] = {}
    """Client properties, which override those of the file; values may be references, see kctl.config.properties."""
    cluster_id: str | None = None
    """The id that the cluster must have."""
    protected: bool = False
    """Each change must be confirmed with the name of the profile."""
    read_only: bool = False
    """All changes are refused."""
    format: str | None = None
    timeout: str | None = None


class Profiles(NamedTuple):
    """All profiles by name, and the current one, which applies if none is named."""

    profiles: Mapping[str, Profile] = {}
    current: str | None = None

    def named(self, name: str) -> Profile:
        """Return a profile; raise UsageError if there is none of this name."""
        profile = self.profiles.get(name)
        if profile is None:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise UsageError(f"there is no profile '{name}'; profiles are: {known}")
        return profile

    def with_profile(self, profile: Profile) -> Profiles:
        """Add or replace a profile.  Raises UsageError for more than PROFILES_MAX."""
        profiles = {**self.profiles, profile.name: profile}
        if len(profiles) > PROFILES_MAX:
            raise UsageError(f"there are {PROFILES_MAX} profiles already; remove one with 'kctl profile remove'")
        return self._replace(profiles=profiles)

    def without(self, name: str) -> Profiles:
        """Remove a profile.  Raises UsageError if there is none of this name."""
        self.named(name)
        profiles = {key: value for key, value in self.profiles.items() if key != name}
        return Profiles(profiles, None if self.current == name else self.current)

    def renamed(self, name: str, new: str) -> Profiles:
        """Return the profiles with a new name; raise UsageError if there is no profile `name`, or one called `new`."""
        profile = self.named(name)._replace(name=checked_name(new))
        if new in self.profiles:
            raise UsageError(f"there is a profile '{new}' already")
        profiles = {key: value for key, value in self.profiles.items() if key != name} | {new: profile}
        return Profiles(profiles, new if self.current == name else self.current)


def checked_name(name: str) -> str:
    """Return the name.  Raises UsageError unless it consists of letters, digits, dots, hyphens and underscores."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot be the name of a profile: use at most 63 letters, digits, '.', '-' and '_', of which the"
            " first is a letter or digit"
        )
    return name


def format_profiles(profiles: Profiles) -> bytes:
    """Return the profiles as the JSON document that is stored."""
    document = {
        "version": _VERSION,
        "current": profiles.current,
        "profiles": {name: _fields(profiles.profiles[name]) for name in sorted(profiles.profiles)},
    }
    return (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode()


def parse_profiles(data: bytes, path: str) -> Profiles:
    """Return the profiles in a document.  Raises UsageError with the path and what is wrong."""
    try:
        return _parse(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a valid file of profiles: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _fields(profile: Profile) -> dict[str, Any]:
    given = profile._asdict()
    del given["name"]
    return {name: dict(value) if name == "properties" else value for name, value in given.items() if value}


def _parse(document: Any) -> Profiles:
    """Parse the profiles; raise ValueError and UsageError for invalid ones."""
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError(f'expected an object with "version": {_VERSION}')
    unknown = document.keys() - {"version", "current", "profiles"}
    found = document.get("profiles", {})
    current = document.get("current")
    if unknown or not isinstance(found, dict) or not (current is None or isinstance(current, str)):
        raise ValueError('expected "version", "current", which is a name, and an object "profiles", and nothing else')
    if len(found) > PROFILES_MAX:
        raise ValueError(f"more than {PROFILES_MAX} profiles")
    profiles = Profiles({checked_name(name): _profile(name, fields) for name, fields in found.items()}, current)
    if current is not None:
        profiles.named(current)
    return profiles


def _profile(name: str, fields: Any) -> Profile:
    """Parse a profile; raise ValueError for an invalid one."""
    if not isinstance(fields, dict):
        raise ValueError(f"profile '{name}' is not an object")
    unknown = fields.keys() - {*_TEXTS, *_FLAGS, "properties"}
    if unknown:
        raise ValueError(
            f"profile '{name}' has the unknown field '{min(unknown)}'; a later version of kctl may have added it"
        )
    for field in _TEXTS:
        if not isinstance(fields.get(field, ""), str):
            raise ValueError(f"'{field}' of profile '{name}' is not a string")
    for field in _FLAGS:
        if not isinstance(fields.get(field, False), bool):
            raise ValueError(f"'{field}' of profile '{name}' is neither true nor false")
    properties = fields.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise ValueError(f"'properties' of profile '{name}' is not an object with strings")
    if fields.get("format", FORMATS[0]) not in FORMATS:
        raise ValueError(f"'format' of profile '{name}' is not one of {', '.join(FORMATS)}")
    return Profile(name, **fields)


# Reads and changes the file with the profiles of a user.


def read_profiles(path: str) -> Profiles:
    """Return all profiles.  Raises UsageError if the file is invalid or cannot be read."""
    try:
        return parse_profiles(read_regular(path), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def change_profiles(path: str, change: Callable[[Profiles], Profiles]) -> Profiles:
    """Replace the profiles by `change` of them, under a lock, and return the new ones.  Raises UsageError."""
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
