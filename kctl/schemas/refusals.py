"""Refused requests, with the statuses, codes and texts that Confluent documents for its REST API.  Pure."""

from __future__ import annotations

from typing import Any

from kctl.errors import KctlError

LEVELS_TEXT = (
    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
    "forward_transitive, and full_transitive"
)
MODES_TEXT = "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."


class Refused(KctlError):
    """A request that is answered with an error; nothing was changed."""

    def __init__(self, code: int, message: str) -> None:
        """`code` is a status of HTTP, or has one as its first three digits."""
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The status of HTTP."""
        return self.code if self.code < 1_000 else self.code // 100

    @property
    def document(self) -> dict[str, Any]:
        """The body of the response."""
        return {"error_code": self.code, "message": str(self)}


def path_not_found() -> Refused:
    """Return error 404: no such path."""
    return Refused(404, "HTTP 404 Not Found")


def method_not_allowed() -> Refused:
    """Return error 405: a path that has other methods."""
    return Refused(405, "HTTP 405 Method Not Allowed")


def subject_not_found(subject: str) -> Refused:
    """Return error 40401: the subject has no versions, or no setting of its own that could be deleted."""
    return Refused(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> Refused:
    """Return error 40402: the subject has versions, and not this one."""
    return Refused(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> Refused:
    """Return error 40403: no schema has this id, or the subject has none with this text."""
    return Refused(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_soft_deleted(subject: str) -> Refused:
    """Return error 40404: all versions were deleted before."""
    return Refused(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> Refused:
    """Return error 40405: a version was not deleted before it is to be deleted permanently."""
    return Refused(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> Refused:
    """Return error 40406: the version was deleted before."""
    return Refused(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> Refused:
    """Return error 40407: the version was not deleted before it is to be deleted permanently."""
    return Refused(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def level_not_configured(subject: str) -> Refused:
    """Return error 40408: the subject has no compatibility level of its own."""
    return Refused(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> Refused:
    """Return error 40409: the subject has no mode of its own."""
    return Refused(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: list[str]) -> Refused:
    """Return error 409: the compatibility level of the subject does not permit the schema."""
    details = f"[{', '.join(messages)}]"
    return Refused(
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}',
    )


def invalid_schema(reason: str) -> Refused:
    """Return error 42201: a text that is not a schema of its type, or a reference to nothing."""
    return Refused(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> Refused:
    """Return error 42202: a version in a path that is neither a number nor `latest`."""
    return Refused(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and "
        'the string "latest"',
    )


def not_permitted(message: str) -> Refused:
    """Return error 42205: the mode does not permit the change."""
    return Refused(42205, message)


def reference_exists(subject: str, version: int) -> Refused:
    """Return error 42206: another schema refers to the version."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return Refused(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> Refused:
    """Return error 42208: a name that no subject can have."""
    return Refused(42208, f"The specified subject '{subject}' is not a valid.")


def invalid_body(reason: str) -> Refused:
    """Return error 400: a body that is not the JSON of the request."""
    return Refused(400, reason)
