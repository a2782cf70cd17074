"""The users of a registry with basic authentication: a file with a line USER:PASSWORD for each."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence

from kctl.errors import UsageError
from kctl.system.user_files import read_regular


class Users:
    """Names and passwords; without any, each request is permitted.  The repr has no secret."""

    def __init__(self, pairs: Sequence[str]) -> None:
        """Each is USER:PASSWORD."""
        self._pairs = tuple(pair.encode() for pair in pairs)

    @property
    def is_required(self) -> bool:
        """Whether requests need a user."""
        return bool(self._pairs)

    def permits(self, authorization: str) -> bool:
        """Return whether a header Authorization is that of a user, in a time that does not depend on the contents."""
        if not self._pairs:
            return True
        scheme, _, encoded = authorization.partition(" ")
        try:
            given = base64.b64decode(encoded.strip(), validate=True) if scheme.lower() == "basic" else b""
        except (binascii.Error, ValueError):
            given = b""
        matches = [hmac.compare_digest(given, pair) for pair in self._pairs]
        return any(matches)


def read_users(path: str) -> Users:
    """Return the users in a file.  Raises UsageError, which does not show the contents."""
    try:
        lines = read_regular(path).decode().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    pairs = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    for number, line in pairs:
        user, colon, password = line.partition(":")
        if not user or not colon or not password:
            raise UsageError(f"{path}, line {number}: expected USER:PASSWORD")
    if not pairs:
        raise UsageError(f"{path} has no users: each line is USER:PASSWORD")
    return Users([line for _, line in pairs])
