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

    def __init__(self, schema: Schema) -> None:
        """Compile the schema, or raise SchemaError."""
        self._id = schema.id
        try:
            document = json.loads(schema.text)
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
                f"schema {schema.id} is not a valid JSON Schema: {str(error).splitlines()[0][:200]}"
            ) from None

    def decode(self, payload: bytes) -> str:
        """JSON, as it was written.  Raises SchemaError."""
        try:
            text = payload.decode()
            json.loads(text)
        except (ValueError, RecursionError):
            raise SchemaError("it is not JSON") from None
        return text

    def encode(self, text: str) -> bytes:
        """Return the text, after it was validated.  Raises SchemaError."""
        try:
            self._validator.validate(json.loads(text))
        except exceptions.ValidationError as error:
            raise SchemaError(f"it is not valid at {error.json_path}: {error.message[:200]}") from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"it is not JSON: {error}") from None
        except Unresolvable as error:
            raise SchemaError(f"schema {self._id} refers to {error.ref}, which is not among its references") from None
        return text.encode()
