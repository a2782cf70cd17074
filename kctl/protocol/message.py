"""Defines messages: typed dataclasses whose fields have their wire types and versions.

    @request(key=0, versions="0-9", flexible="9+")
    class ProduceRequest:
        transactional_id: str | None = string("3+", nullable="3+", default=None)
        acks: int = int16()
        topic_data: list[TopicProduceData] = array(TopicProduceData)

One class serves all versions of a message.  A field has the versions that contain it (default "0+"), the versions in
which it may be null, and its value in versions without it (`default`).  Version ranges are written as in Kafka:
"3+", "2-4", "1", "none".  From its first flexible version on (KIP-482) a message has compact lengths, and every
struct in it ends with tagged fields: optional fields with a number, left out if they have their default.

The decorators create slotted, keyword-only dataclasses, which type checkers understand (PEP 681).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

from kctl.limits import REQUEST_COST_MAX
from kctl.protocol.definition import Definition, Field, Role, parse_versions

T = TypeVar("T")

Records = memoryview | bytes | Sized
"""Record batches: a view into the received buffer, bytes, or a slice of a file that the network layer sends."""

_REQUIRED: Any = dataclasses.MISSING


REQUESTS: dict[int, type] = {}
"""The request classes that were defined so far, by API key."""


def _field(
    kind: str,
    versions: str,
    *,
    nullable: str = "none",
    default: Any = _REQUIRED,
    ignorable: bool = False,
    tag: int | None = None,
    secret: bool = False,
    element: Field | None = None,
    struct: type | None = None,
    role: Role | None = None,
) -> Any:
    spec = Field(
        "", kind, parse_versions(versions), parse_versions(nullable), default, ignorable, tag, element, struct, role
    )
    metadata = {"wire": spec}
    if default == []:
        return dataclasses.field(default_factory=list, repr=not secret, metadata=metadata)
    if hasattr(default, "__definition__"):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), repr=not secret, metadata=metadata)
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def boolean(
    versions: str = "0+", *, default: bool = _REQUIRED, ignorable: bool = False, tag: int | None = None
) -> bool:
    """One byte; 0 is false, all others are true."""
    return cast("bool", _field("boolean", versions, default=default, ignorable=ignorable, tag=tag))


def int8(versions: str = "0+", *, default: int = _REQUIRED, ignorable: bool = False, tag: int | None = None) -> int:
    """Return a signed byte."""
    return cast("int", _field("int8", versions, default=default, ignorable=ignorable, tag=tag))


def int16(versions: str = "0+", *, default: int = _REQUIRED, ignorable: bool = False, tag: int | None = None) -> int:
    """Return a signed integer of 2 bytes."""
    return cast("int", _field("int16", versions, default=default, ignorable=ignorable, tag=tag))


def uint16(versions: str = "0+", *, default: int = _REQUIRED, ignorable: bool = False, tag: int | None = None) -> int:
    """Return an unsigned integer of 2 bytes."""
    return cast("int", _field("uint16", versions, default=default, ignorable=ignorable, tag=tag))


def int32(
    versions: str = "0+",
    *,
    default: int = _REQUIRED,
    ignorable: bool = False,
    tag: int | None = None,
    is_partition: bool = False,
) -> int:
    """Return a signed integer of 4 bytes; `is_partition` declares that it is the number of a partition."""
    role = Role.PARTITION if is_partition else None
    return cast("int", _field("int32", versions, default=default, ignorable=ignorable, tag=tag, role=role))


def uint32(versions: str = "0+", *, default: int = _REQUIRED, ignorable: bool = False, tag: int | None = None) -> int:
    """Return an unsigned integer of 4 bytes."""
    return cast("int", _field("uint32", versions, default=default, ignorable=ignorable, tag=tag))


def int64(versions: str = "0+", *, default: int = _REQUIRED, ignorable: bool = False, tag: int | None = None) -> int:
    """Return a signed integer of 8 bytes."""
    return cast("int", _field("int64", versions, default=default, ignorable=ignorable, tag=tag))


def float64(
    versions: str = "0+", *, default: float = _REQUIRED, ignorable: bool = False, tag: int | None = None
) -> float:
    """Return an IEEE 754 double."""
    return cast("float", _field("float64", versions, default=default, ignorable=ignorable, tag=tag))


def uuid(versions: str = "0+", *, default: UUID = _REQUIRED, ignorable: bool = False, tag: int | None = None) -> UUID:
    """16 bytes; all zero means no id."""
    return cast("UUID", _field("uuid", versions, default=default, ignorable=ignorable, tag=tag))


@overload
def string(
    versions: str = ...,
    *,
    default: str = ...,
    ignorable: bool = ...,
    tag: int | None = ...,
    secret: bool = ...,
    is_topic: bool = ...,
    is_cluster_id: bool = ...,
) -> str:
    """Return a field that is never null."""


@overload
def string(
    versions: str = ...,
    *,
    nullable: str,
    default: str | None = ...,
    ignorable: bool = ...,
    tag: int | None = ...,
    secret: bool = ...,
    is_topic: bool = ...,
    is_cluster_id: bool = ...,
) -> str | None:
    """Return a field that is null in the `nullable` versions."""


def string(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: str | None = _REQUIRED,
    ignorable: bool = False,
    tag: int | None = None,
    secret: bool = False,
    is_topic: bool = False,
    is_cluster_id: bool = False,
) -> str | None:
    """UTF-8, at most 32767 bytes; `secret` excludes it from repr().

    `is_topic` and `is_cluster_id` declare that it is the name of a topic or the id of a cluster.
    """
    return cast(
        "str",
        _field(
            "string",
            versions,
            nullable=nullable,
            default=default,
            ignorable=ignorable,
            tag=tag,
            secret=secret,
            role=Role.TOPIC if is_topic else Role.CLUSTER if is_cluster_id else None,
        ),
    )


def topic_name() -> str:
    """For arrays of names of topics."""
    return string(is_topic=True)


def partition_number() -> int:
    """For arrays of numbers of partitions."""
    return int32(is_partition=True)


@overload
def bytes_(versions: str = ..., *, default: bytes = ..., ignorable: bool = ..., secret: bool = ...) -> bytes:
    """Return a field that is never null."""


@overload
def bytes_(
    versions: str = ..., *, nullable: str, default: bytes | None = ..., ignorable: bool = ..., secret: bool = ...
) -> bytes | None:
    """Return a field that is null in the `nullable` versions."""


def bytes_(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: bytes | None = _REQUIRED,
    ignorable: bool = False,
    secret: bool = False,
) -> bytes | None:
    """Opaque bytes, copied on decoding; `secret` excludes them from repr()."""
    return cast(
        "bytes", _field("bytes", versions, nullable=nullable, default=default, ignorable=ignorable, secret=secret)
    )


def records(versions: str = "0+", *, nullable: str = "none") -> Any:
    """Record batches, never copied: decoding returns a view into the buffer, encoding a chunk."""
    return _field("records", versions, nullable=nullable)


@overload
def array(
    element: Callable[..., T],
    versions: str = ...,
    *,
    default: list[T] = ...,
    ignorable: bool = ...,
    tag: int | None = ...,
) -> list[T]:
    """Return a field that is never null."""


@overload
def array(
    element: Callable[..., T],
    versions: str = ...,
    *,
    nullable: str,
    default: list[T] | None = ...,
    ignorable: bool = ...,
    tag: int | None = ...,
) -> list[T] | None:
    """Return a field that is null in the `nullable` versions."""


def array(
    element: Callable[..., T],
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: list[T] | None = _REQUIRED,
    ignorable: bool = False,
    tag: int | None = None,
) -> list[T] | None:
    """Return a list of structs (pass the class) or of plain values (pass the specifier: `array(int32)`)."""
    spec = _field(
        "array",
        versions,
        nullable=nullable,
        default=default,
        ignorable=ignorable,
        tag=tag,
        element=_element(element),
    )
    return cast("list[T]", spec)


@overload
def nested(struct_class: type[T], versions: str = ...) -> T:
    """Return a field that is never null."""


@overload
def nested(
    struct_class: type[T], versions: str = ..., *, nullable: str, default: T | None = ..., tag: int | None = ...
) -> T | None:
    """Return a field that is null in the `nullable` versions."""


@overload
def nested(struct_class: type[T], versions: str = ..., *, tag: int, default: None) -> T | None:
    """Return a tagged field that may be absent."""


def nested(
    struct_class: type[T],
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: T | None = _REQUIRED,
    tag: int | None = None,
) -> T | None:
    """Return a struct outside of arrays.

    A nullable struct (KIP-893) is preceded by a number that is negative or 0 for null.  In a tagged field, null and
    absent differ unless the default is None; a tagged struct that is not nullable is None if it is absent.
    """
    spec = _field("struct", versions, nullable=nullable, tag=tag, default=default, struct=struct_class)
    return cast("T | None", spec)


def _element(element: Callable[..., Any]) -> Field:
    made = _field("struct", "0+", struct=element) if isinstance(element, type) else element()
    return cast("Field", made.metadata["wire"])


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        uint16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        bytes_,
        records,
        array,
        nested,
    ),
)
def struct(cls: type[T]) -> type[T]:
    """Return a struct inside of messages; it has the versions of the message that contains it."""
    return _define(cls, None, "0+", "0+")


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        uint16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        bytes_,
        records,
        array,
        nested,
    ),
)
def request(
    *,
    key: int,
    versions: str,
    flexible: str,
    served: str | None = None,
    sent: str | None = None,
    cost_max: int = REQUEST_COST_MAX,
) -> Callable[[type[T]], type[T]]:
    """Return a request of the API with this key; decoding fails if it costs more than `cost_max`.

    `served` are the versions that our broker serves: all by default, "none" for an API that only our client uses.
    `sent` are those that our client sends: all by default.
    """

    def define(cls: type[T]) -> type[T]:
        made = _define(
            cls,
            key,
            versions,
            flexible,
            served=versions if served is None else served,
            sent=versions if sent is None else sent,
            cost_max=cost_max,
        )
        REQUESTS[key] = made
        return made

    return define


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        uint16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        bytes_,
        records,
        array,
        nested,
    ),
)
def response(*, key: int, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Return a response of the API with this key."""
    return lambda cls: _define(cls, key, versions, flexible)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        uint16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        bytes_,
        records,
        array,
        nested,
    ),
)
def data(*, versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Return a message inside of another one or of a record, such as a consumer's subscription."""
    return lambda cls: _define(cls, None, versions, flexible)


def _define(
    cls: type[T],
    key: int | None,
    versions: str,
    flexible: str,
    *,
    served: str = "none",
    sent: str = "none",
    cost_max: int | None = None,
) -> type[T]:
    made = dataclass(kw_only=True, slots=True)(cls)
    fields = tuple(
        dataclasses.replace(field.metadata["wire"], name=field.name) for field in dataclasses.fields(cast("Any", made))
    )
    definition = Definition(
        name=made.__name__,
        key=key,
        versions=parse_versions(versions),
        flexible=parse_versions(flexible),
        served=parse_versions(served),
        sent=parse_versions(sent),
        fields=fields,
        cost_max=cost_max,
    )
    type.__setattr__(made, "__definition__", definition)
    return made
