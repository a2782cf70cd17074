"""The journal of a node: how far its conversion is, and the originals of all files that it changes.

One file in the first log directory, written before the first change.  Brokers read directories there and ignore it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from kctl.errors import UsageError
from kctl.migration.documents import canonical_json
from kctl.output.documents import parse_json
from kctl.storage.files import Files

JOURNAL_NAME = ".kctl-migration.json"
_KIND = "kctl-migration-journal"


class State(Enum):
    """How far a conversion is."""

    CONVERTING = "converting"
    CONVERTED = "converted"
    REVERTING = "reverting"
    REVERTED = "reverted"


@dataclass(frozen=True, slots=True)
class Journal:
    """What was begun on a node, by which plan."""

    plan_digest: str
    node_id: int
    state: State
    originals: Mapping[str, bytes | None] = field(repr=False)
    """The contents of the files before the conversion, by path; None for one that did not exist."""

    def at(self, state: State) -> Journal:
        """Return the journal in another state."""
        return replace(self, state=state)


def read_journal(files: Files, home: str) -> Journal | None:
    """Return the journal in a log directory; None without.  Raises UsageError if it is damaged, and OSError."""
    path = f"{home}/{JOURNAL_NAME}"
    if not files.exists(path):
        return None
    try:
        document = parse_json(files.read(path))
        if document["kind"] != _KIND:
            raise ValueError(f"its kind is not {_KIND}")
        return Journal(
            str(document["plan"]),
            int(document["node_id"]),
            State(document["state"]),
            {
                str(name): None if text is None else base64.b64decode(text, validate=True)
                for name, text in document["originals"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise UsageError(f"{path} is damaged ({type(error).__name__}: {error}): restore it from a backup") from None


def write_journal(files: Files, home: str, journal: Journal) -> None:
    """Replace the journal and sync it.  Raises OSError."""
    document = {
        "kind": _KIND,
        "plan": journal.plan_digest,
        "node_id": journal.node_id,
        "state": journal.state.value,
        "originals": {
            path: None if data is None else base64.b64encode(data).decode() for path, data in journal.originals.items()
        },
    }
    files.write_atomically(f"{home}/{JOURNAL_NAME}", canonical_json(document).encode())
    files.sync_directory(home)
