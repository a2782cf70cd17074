"""Reads documents of ACLs."""

from __future__ import annotations

from kctl.admin.acl_document import read_document
from kctl.errors import UsageError
from kctl.input_files import read_input
from kctl.security.acls import AclBinding


def read_acls(path: str) -> list[AclBinding]:
    """The ACLs of a document.  Raises UsageError."""
    try:
        return read_document(read_input(path), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
