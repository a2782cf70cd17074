"""Names of the exceptions of Kafka's Java client.  Pure."""

from __future__ import annotations

from kctl.errors import ErrorCode

_PACKAGE = "org.apache.kafka.common.errors"


def java_class(code: ErrorCode) -> str:
    """The class of the exception for an error code, named after the code as most of them are."""
    words = code.name.removesuffix("_ERROR").removesuffix("_EXCEPTION").split("_")
    return f"{_PACKAGE}.{''.join(word.capitalize() for word in words)}Exception"
