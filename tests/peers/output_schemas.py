"""Compares what commands show with the schema that `--schema` prints for them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from kctl.commands.frame.output.json_schema import schema_of
from kctl.commands.frame.output.shown import shown_by
from kctl.commands.frame.root import all_commands


def problem_of(words: Sequence[str], out: str) -> str | None:
    """Why the JSON output of a command line does not match its schema; None if it matches, or is not JSON."""
    words = list(words)
    format_ = words[words.index("--format") + 1] if "--format" in words[:-1] else ""
    name = _name(words)
    if format_ not in {"json", "jsonl", "yaml"} or name is None or "--schema" in words or "--compat" in words:
        return None
    if not out:
        return None if format_ == "jsonl" else f"kctl {name} shows no document"
    validator = _validator(name, is_line=format_ == "jsonl")
    if validator is None:
        return f"kctl {name} has no schema, but shows {out[:200]}"
    for text in out.splitlines() if format_ == "jsonl" else [out]:
        document = yaml.safe_load(text) if format_ == "yaml" else json.loads(text)
        if isinstance(document, dict) and document.keys() == {"error"} and format_ != "jsonl":
            error = document["error"]
            if [type(error.get(member)) for member in ("code", "message", "retryable")] != [str, str, bool]:
                return f"kctl {name}: not an error: {error}"
            continue
        if "--watch" in words:
            document.pop("watched_at", None)
        for error in validator.iter_errors(document):
            detail = "; ".join(cause.message for cause in error.context or ()) or error.message
            return f"kctl {name} at {error.json_path}: {detail[:500]}"
    return None


def _name(words: list[str]) -> str | None:
    nouns = _commands()
    for position, word in enumerate(words):
        if word in nouns:
            verb = words[position + 1] if position + 1 < len(words) else ""
            return word if word in nouns[word] else f"{word} {verb}" if verb in nouns[word] else None
    return None


@functools.cache
def _commands() -> dict[str, dict[str, Any]]:
    return all_commands()


@functools.cache
def _validator(name: str, *, is_line: bool) -> Any:
    """A validator that also refuses members that the schema does not have."""
    noun, _, verb = name.partition(" ")
    shown = shown_by(_commands()[noun][verb or noun].callback)
    if shown is None:
        return None
    schema = schema_of(name, "", shown, is_line=is_line)
    for definition in schema["$defs"].values():
        definition["additionalProperties"] = False
    Draft202012Validator.check_schema(schema)
    members = {f"#/$defs/{name}": definition["properties"].keys() for name, definition in schema["$defs"].items()}

    def any_of(validator: Any, choices: list[Any], instance: object, schema: Any) -> Iterator[ValidationError]:
        """All members are required, and no others allowed: only rows with the members of an object can describe it."""
        if isinstance(instance, dict):
            choices = [
                choice for choice in choices if members.get(choice.get("$ref"), instance.keys()) == instance.keys()
            ] or choices
        yield from Draft202012Validator.VALIDATORS["anyOf"](validator, choices, instance, schema)

    return extend(Draft202012Validator, {"anyOf": any_of})(schema)
