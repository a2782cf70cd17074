"""Reads and writes YAML documents of mappings, lists and text.  Pure.

Only the parser of PyYAML is used, and its events are limited before anything is built from them: no tags, no anchors
and aliases, which can multiply a small document, no key that is given twice, and bounds on size and depth.  Every
scalar is text, as it is written: `yes`, `0777` and `1:30` have no meaning of their own as in YAML 1.1.  Only `null`,
`~` and nothing are None.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.output.terminal_text import escape_lines

YAML_BYTES_MAX = bound(
    Subject.NAMED_FILES,
    "document of `kctl plan` and `kctl apply`",
    8 << 20,
    "bytes",
    on_excess="it is refused",
)
YAML_DEPTH_MAX = bound(
    Subject.NAMED_FILES,
    "mappings and lists inside each other in a document of `kctl plan` and `kctl apply`",
    20,
    "levels",
    on_excess="the document is refused",
)


Yaml = dict[str, "Yaml"] | list["Yaml"] | str | None

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_REPRESENTER: Any = yaml.SafeDumper(io.StringIO())
_TEXT_TAG = "tag:yaml.org,2002:str"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_WIDTH = 120


class _Open:
    """A mapping or list whose end has not been read."""

    def __init__(self, value: dict[str, Yaml] | list[Yaml]) -> None:
        self.value = value
        self.key: str | None = None

    def add(self, item: Yaml, event: Any, path: str) -> None:
        if isinstance(self.value, list):
            self.value.append(item)
        elif self.key is None:
            if not isinstance(item, str):
                _fail(path, event, "a name is neither a list nor a mapping, and not empty")
            if item in self.value:
                _fail(path, event, f"'{item}' is given twice")
            self.key = item
            self.value[item] = None
        else:
            self.value[self.key] = item
            self.key = None


def read_yaml(data: bytes, path: str) -> Yaml:
    """Return the only document of a file.  Raises UsageError with the path and the line."""
    if len(data) > YAML_BYTES_MAX:
        raise UsageError(f"{path} has more than {YAML_BYTES_MAX} bytes")
    try:
        return _read(data.decode("utf-8-sig"), path)
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        if mark is None or problem is None:
            raise UsageError(f"{path}: {' '.join(str(error).split())}") from None
        raise UsageError(f"{path}, line {mark.line + 1}, column {mark.column + 1}: {problem}") from None


def write_yaml(document: Any) -> str:
    """Return the document as `read_yaml` reads it back; numbers and true and false become text."""
    events = [
        yaml.StreamStartEvent(),
        yaml.DocumentStartEvent(explicit=False),
        *_events(document),
        yaml.DocumentEndEvent(explicit=False),
        yaml.StreamEndEvent(),
    ]
    return escape_lines(str(yaml.emit(events, Dumper=_DUMPER, allow_unicode=True, width=_WIDTH)))


def _events(value: Any) -> Iterator[Any]:
    """Yield the events of a value.  `yaml.dump` builds a graph of nodes first, which takes twice as long."""
    if isinstance(value, dict):
        yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=False)
        for key, item in value.items():
            yield _scalar(key)
            yield from _events(item)
        yield yaml.MappingEndEvent()
    elif isinstance(value, (list, tuple)):
        yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=False)
        for item in value:
            yield from _events(item)
        yield yaml.SequenceEndEvent()
    else:
        yield _scalar(value)


def _scalar(value: str | float | bool | None) -> Any:
    if isinstance(value, str):
        # PyYAML takes bidirectional marks for printable: within quotation marks `write_yaml` can escape them.
        style = None if escape_lines(value) == value else '"'
        return yaml.ScalarEvent(None, None, _implicit_for(value), value, style=style)
    return yaml.ScalarEvent(None, None, (True, False), _REPRESENTER.represent_data(value).value)


@functools.lru_cache(4096)
def _implicit_for(text: str) -> tuple[bool, bool]:
    """Return whether the text is read as text without and with quotation marks."""
    return _REPRESENTER.resolve(yaml.ScalarNode, text, (True, False)) == _TEXT_TAG, True


def plain(text: str) -> str | int | bool:
    """Return the value that `write_yaml` writes without quotation marks, if `text` is a usual number, true or false."""
    if text in {"true", "false"}:
        return text == "true"
    number = text.removeprefix("-")
    is_number = number.isascii() and number.isdecimal() and len(number) < 19 and (number == "0" or number[0] != "0")
    return int(text) if is_number and text != "-0" else text


def _read(text: str, path: str) -> Yaml:
    opened: list[_Open] = []
    document: Yaml = None
    documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    _fail(path, event, "a second document begins; only one is read")
                continue
            case yaml.AliasEvent():
                _fail(path, event, "anchors and aliases are not supported")
            case yaml.ScalarEvent() | yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                _check(event, path)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                document = opened.pop().value
                continue
            case _:
                continue
        item: Yaml
        if isinstance(event, yaml.ScalarEvent):
            item = None if event.implicit[0] and event.value in _NULLS else str(event.value)
        else:
            item = {} if isinstance(event, yaml.MappingStartEvent) else []
        if opened:
            opened[-1].add(item, event, path)
        else:
            document = item
        if isinstance(item, (dict, list)):
            opened.append(_Open(item))
            if len(opened) > YAML_DEPTH_MAX:
                _fail(path, event, f"more than {YAML_DEPTH_MAX} mappings or lists are inside each other")
    return document


def _check(event: Any, path: str) -> None:
    if event.anchor is not None:
        _fail(path, event, "anchors and aliases are not supported")
    if event.tag is not None and event.tag != "!":
        _fail(path, event, f"tags such as {event.tag} are not supported")


def _fail(path: str, event: Any, reason: str) -> NoReturn:
    raise UsageError(f"{path}, line {event.start_mark.line + 1}: {reason}")
