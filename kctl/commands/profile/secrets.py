"""Which client properties are secrets.  Pure."""

from __future__ import annotations

import re

from kctl.config.references import has_reference, is_reference
from kctl.errors import UsageError

HIDDEN = "[hidden]"
_SECRET = re.compile(r"password|secret|jaas|token|credential|passphrase|keystore\.(?:key|certificate)", re.IGNORECASE)
_PLACE = re.compile(r"\.(?:location|url|class|type)$|endpoint", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a property of this name may contain a secret."""
    return _SECRET.search(name) is not None and _PLACE.search(name) is None


def shown(name: str, value: str) -> str:
    """The value for people; secrets are hidden, references to them are not."""
    return HIDDEN if is_secret(name) and not is_reference(value) else value


def check_given(name: str, value: str) -> None:
    """Raises UsageError for a secret on the command line, where other users of the machine can read it."""
    if is_secret(name) and not has_reference(value):
        raise UsageError(
            f"{name} is a secret, and other users can read command lines: write it into a file for --command-config, or"
            f" give a reference such as --property '{name}=${{env:VARIABLE}}' or '${{directory:FOLDER:FILE}}'"
        )
