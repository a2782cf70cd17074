"""Values of JSON Schema: the payload is JSON already; it is checked when it is written."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import exceptions, validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from kctl.client.registry.schema import Schema, SchemaError


class JsonCodec:
    """Values of one JSON Schema."""

    kind = "JSON"

    def __init__(self, schema: Schema) -> None:
        """Raise SchemaError."""
        self._label = schema.label
        try:
            self._document = document = json.loads(schema.text)
            resources = [
                (name, Resource.from_contents(json.loads(used.text), default_specification=DRAFT7))
                for name, used in schema.by_reference.items()
            ]
            kind: Any = validators.validator_for(document, default=validators.validator_for({}))
            kind.check_schema(document)
            # A registry without a function that retrieves: nothing is fetched from addresses in a schema.
            self._validator = kind(document, registry=Registry().with_resources(resources))
        except (ValueError, TypeError, AttributeError, RecursionError, exceptions.SchemaError) as error:
            raise SchemaError(
                f"{schema.label} is not a valid JSON Schema: {str(error).splitlines()[0][:200]}"
            ) from None

    def decode(self, payload: bytes) -> str:
        """JSON, as it was written.  Raises SchemaError."""
        try:
            text = payload.decode()
            json.loads(text)
        except (ValueError, RecursionError):
            raise SchemaError("it is not JSON") from None
        return text

    @property
    def record_name(self) -> str | None:
        """The title of the schema."""
        title = self._document.get("title") if isinstance(self._document, dict) else None
        return title if isinstance(title, str) else None

    def value(self, payload: bytes, *, validates: bool) -> Any:
        """Return the value of a payload, checked against the schema if `validates`.  Raises SchemaError."""
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            raise SchemaError("it is not JSON") from None
        if validates:
            self.check(value)
        return value

    def encode_value(self, value: Any, *, validates: bool) -> bytes:
        """Return the payload of a value, checked against the schema if `validates`.  Raises SchemaError."""
        try:
            payload = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"it cannot be written as JSON: {str(error)[:200]}") from None
        if validates:
            self.check(json.loads(payload))  # as readers see it: tuples are lists, keys are strings
        return payload

    def encode(self, text: str) -> bytes:
        """Return the text, after it was validated.  Raises SchemaError."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"it is not JSON: {error}") from None
        self.check(value)
        return text.encode()

    def check(self, value: Any) -> None:
        """Raise SchemaError for a value that the schema does not permit."""
        try:
            self._validator.validate(value)
        except exceptions.ValidationError as error:
            raise SchemaError(f"it is not valid at {error.json_path}: {error.message[:200]}") from None
        except RecursionError:
            raise SchemaError("it is nested too deeply to be checked") from None
        except Unresolvable as error:
            raise SchemaError(f"{self._label} refers to {error.ref}, which is not among its references") from None
