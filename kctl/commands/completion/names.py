"""The names that a shell completes: `kctl __names KIND WORD LINE`, which the completion scripts call.

Reads stored profiles and names only, and needs neither typer nor a connection.  `LINE` is the command line up to the
cursor, and `WORD` is the word before the cursor as the shell has divided it.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence

from kctl.commands.frame.name_cache import KINDS, cluster_key, is_harmless, stored_names
from kctl.commands.frame.profile_store import load_profiles, profiles_path, selected_name
from kctl.errors import UsageError

LINE_CHARACTERS_MAX = 1 << 16
_RESOURCES = {"topic": "topics", "broker": "brokers", "logger": "brokers", "user": "users", "group": "groups"}


def completions(arguments: Sequence[str]) -> str:
    """The lines to print; none after an error, which a shell could not show during completion."""
    try:
        kind, word, line = arguments
        found = _names(kind, _words(line[-LINE_CHARACTERS_MAX:]), os.environ)
    except (ValueError, UsageError):
        return ""
    return "".join(f"{name}\n" for name in matching(found, word, line))


def matching(names: Sequence[str], word: str, line: str) -> list[str]:
    """The completions of `word`: all names that begin like the text before the cursor.

    `word` may be only the end of that text, because bash divides words at colons, or begin with an option and "=".  In
    a list, the last item is completed.
    """
    before = line.rsplit(maxsplit=1)[-1] if line and not line[-1].isspace() else ""
    if before.startswith("--") and "=" in before:
        option, _, before = before.partition("=")
        word = word.removeprefix(f"{option}=")
    typed = before if before.endswith(word) else word
    list_head, comma, item = typed.rpartition(",")
    head = (list_head + comma)[len(typed) - len(word) :]
    cut = max(len(typed) - len(word) - len(list_head + comma), 0)
    return [head + name[cut:] for name in names if name.startswith(item) and is_harmless(name)]


def _names(kind: str, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Raises UsageError."""
    if kind == "profiles":
        profiles = load_profiles(profiles_path(environment))
        return [] if profiles is None else sorted(profiles.profiles)
    if kind == "resources":
        kind = next((_RESOURCES[word] for word in words if word in _RESOURCES), "")
    if kind not in KINDS:
        return []
    key = cluster_key(
        _value(words, "--bootstrap-server", "-b") or environment.get("KCTL_BOOTSTRAP_SERVER"),
        _value(words, "--command-config") or environment.get("KCTL_COMMAND_CONFIG"),
        selected_name(_value(words, "--profile"), environment),
    )
    return stored_names(environment, kind, key, now_s=time.time())


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # An unfinished quotation.
        return line.split()


def _value(words: Sequence[str], option: str, letter: str | None = None) -> str | None:
    """The value of an option on an unfinished command line; `letter` is its short form."""
    found = None
    for position, word in enumerate(words):
        if word in {option, letter}:
            found = words[position + 1] if position + 1 < len(words) else found
        elif word.startswith(f"{option}="):
            found = word.removeprefix(f"{option}=")
        elif letter is not None and word.startswith(letter):
            found = word.removeprefix(letter)
    return found
