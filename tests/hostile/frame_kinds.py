"""What the connections of an attack send: requests that are valid, and expensive or odd.

Each class makes frames from a seed; tests/hostile/fuzzing.py sends them.  Random and mutated requests are made there.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from kctl.errors import MalformedRequest
from kctl.protocol import codec
from kctl.protocol.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kctl.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kctl.protocol.apis.delete_topics import DeleteTopicsRequest
from kctl.protocol.apis.find_coordinator import FindCoordinatorRequest
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest
from kctl.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.definition import Field, definition_of
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.protocol.registry import Api
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.hostile.raw_client import API_VERSIONS, framed

Place = tuple[str, ...]
"""The names of the nested fields that lead to an array."""

_ELEMENTS = (18_000, 7_000, 3_500, 1_000, 300)
"""The first of these numbers of elements that the bound on the cost of decoding allows is sent."""
_SHORT = frozenset({"create_topics", "create_partitions", "delete_topics"})
"""APIs whose elements cost the broker seconds of legitimate work each time; their arrays have fewer elements."""


def arrays(cls: type, version: int, above: Place = ()) -> list[Place]:
    """All arrays of a message, at any depth."""
    found: list[Place] = []
    for field in definition_of(cls).fields:
        if version not in field.versions:
            continue
        place = (*above, field.name)
        inner = field.struct
        if field.element is not None:
            found.append(place)
            inner = field.element.struct
        if inner is not None:
            found += arrays(inner, version, place)
    return found


def message(cls: type, version: int, long: Place, count: int, number: int = 0) -> Any:
    """A message with many elements in one array, and one in each other array."""
    fields = [field for field in definition_of(cls).fields if version in field.versions]
    return cls(**{field.name: _value(field, version, long, count, number) for field in fields})


def _value(field: Field, version: int, long: Place, count: int, number: int) -> Any:
    below = long[1:] if long[:1] == (field.name,) else ()
    if field.struct is not None:
        return message(field.struct, version, below, count, number)
    if field.element is not None:
        numbers = range(count if long == (field.name,) else 1)
        return [_value(field.element, version, (field.element.name, *below), count, number) for number in numbers]
    match field.kind:
        case "string":
            return f"name-{number}"
        case "records":
            return build_batch([Record(0, 0, None, b"value")])
        case "bytes":
            return b""
        case "boolean":
            return field.name == "validate_only"
        case "float64":
            return 1.0
        case "uuid":
            return UUID(int=number + 1)
        case "int8" | "int16":
            return 1
        case _:
            return number


def _frame(request: Any, key: int, version: int, correlation_id: int, client_id: str = "flood") -> bytes:
    header = encode_request_header(RequestHeader(key, version, correlation_id, client_id))
    return framed(header + codec.encode_bytes(request, version))


class LongFrames:
    """Valid requests of every API and version with as many elements in one array as can be decoded."""

    def __init__(self, seed: int, apis: list[tuple[Api, int]]) -> None:
        self._random = random.Random(seed)
        self._places = [
            (api, version, place) for api, version in apis for place in arrays(api.request, version) or [()]
        ]

    def frame(self) -> bytes:
        """The next request."""
        api, version, place = self._random.choice(self._places)
        for count in _ELEMENTS if api.name not in _SHORT else (30,):
            request = message(api.request, version, place, count)
            with suppress(ValueError, MalformedRequest):
                body = codec.encode_bytes(request, version)
                codec.decode(api.request, body, version)
                header = encode_request_header(RequestHeader(api.key, version, 7, "long"))
                return framed(header + body)
        return API_VERSIONS


class FloodFrames:
    """Valid requests that create state: groups with much metadata, producers, topics, configurations, client ids."""

    def __init__(self, seed: int, _apis: list[tuple[Api, int]]) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self._count = 0
        self._kinds: tuple[Callable[[], bytes], ...] = (
            self._init_producer_id,
            self._init_producer_id,
            self._join_group,
            self._join_with_much_metadata,
            self._leave_group,
            self._heartbeat,
            self._find_coordinator,
            self._create_topic,
            self._delete_topic,
            self._alter_configs,
            self._huge_client_id,
            self._api_versions,
            self._metadata_of_new_client,
        )

    def frame(self) -> bytes:
        """The next request."""
        self._count += 1
        return self._random.choice(self._kinds)()

    def _new_name(self, kind: str) -> str:
        return f"{kind}-{self._seed}-{self._count}"

    def _some_name(self, kind: str) -> str:
        return f"{kind}-{self._random.randrange(50)}"

    def _init_producer_id(self) -> bytes:
        name = self._random.choice((None, self._new_name("txn"), self._some_name("txn")))
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=self._random.choice((1, 60_000)))
        return _frame(request, 22, 1, 1)

    def _join_group(self) -> bytes:
        return self._join([("range", b"")], self._new_name("group"))

    def _join_with_much_metadata(self) -> bytes:
        chance = self._random
        count = chance.choice((1, 100, 5_000))
        protocols = [(f"p{number}", bytes(chance.choice((0, 100)))) for number in range(count)]
        protocols.append(("large", bytes(chance.choice((0, 100_000, 2 << 20)))))
        return self._join(protocols, self._some_name("group"))

    def _join(self, protocols: list[tuple[str, bytes]], group: str) -> bytes:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=self._random.choice((1, 6_000, (1 << 31) - 1)),
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        return _frame(request, 11, self._random.choice((2, 5)), 1)

    def _leave_group(self) -> bytes:
        members = [MemberIdentity(member_id=f"m{number}") for number in range(100)]
        return _frame(LeaveGroupRequest(group_id=self._some_name("group"), members=members), 13, 3, 1)

    def _heartbeat(self) -> bytes:
        request = HeartbeatRequest(group_id=self._new_name("group"), generation_id=1, member_id="m")
        return _frame(request, 12, 3, 1)

    def _find_coordinator(self) -> bytes:
        kind = self._random.choice((0, 1, 2, -1))
        return _frame(FindCoordinatorRequest(key=self._new_name("key"), key_type=kind), 10, 2, 1)

    def _create_topic(self) -> bytes:
        chance = self._random
        odd = (None, "", "-1", "1e9", "nan", "9" * 400, "\0", "\u202e", "compact,delete,compact", "x" * 30_000)
        configs = [
            CreatableTopicConfig(
                name=chance.choice(("retention.ms", "cleanup.policy", "segment.bytes")), value=chance.choice(odd)
            )
            for _ in range(chance.randrange(3))
        ]
        topic = CreatableTopic(
            name=self._some_name("topic"),
            num_partitions=chance.choice((1, 1, 1, 3)),
            replication_factor=1,
            assignments=[],
            configs=configs,
        )
        request = CreateTopicsRequest(
            topics=[topic] * chance.choice((1, 1, 2)), timeout_ms=chance.choice((0, -1, 1_000))
        )
        return _frame(request, 19, 5, 1)

    def _delete_topic(self) -> bytes:
        return _frame(DeleteTopicsRequest(topic_names=[self._some_name("topic")] * 2, timeout_ms=0), 20, 3, 1)

    def _alter_configs(self) -> bytes:
        chance = self._random
        name, value = chance.choice(
            (
                ("retention.ms", "-2"),
                ("retention.ms", None),
                ("", ""),
                ("cleanup.policy", "\0"),
                ("segment.bytes", "9" * 1_000),
                ("x" * 30_000, "x" * 30_000),
                ("leader.replication.throttled.replicas", "0:" * 10_000),
                ("log.segment.bytes", "-1"),
            )
        )
        resource = AlterConfigsResource(
            resource_type=chance.choice((2, 4, 8, 0, 127)),
            resource_name=chance.choice((self._some_name("topic"), "", "0", "-1", "99999999999999999999")),
            configs=[AlterableConfig(name=name, value=value)],
        )
        return _frame(AlterConfigsRequest(resources=[resource], validate_only=False), 33, 1, 1)

    def _huge_client_id(self) -> bytes:
        client_id = f"{self._count}".ljust(32_000, "c")
        return _frame(MetadataRequest(topics=[]), 3, 5, self._random.choice((0, -1, 1)), client_id)

    def _api_versions(self) -> bytes:
        return API_VERSIONS * self._random.choice((1, 50))

    def _metadata_of_new_client(self) -> bytes:
        names = [None, [MetadataRequestTopic(name=self._some_name("topic"))]]
        request = MetadataRequest(topics=self._random.choice(names), allow_auto_topic_creation=True)
        return _frame(request, 3, 5, 1, self._new_name("client"))


class LengthFrames:
    """Frames whose length is wrong, or whose content is empty."""

    def __init__(self, seed: int, _apis: list[tuple[Api, int]]) -> None:
        self._random = random.Random(seed)

    def frame(self) -> bytes:
        """The next frame."""
        chance = self._random
        length = chance.choice((0, 1, -1, 7, 100 << 20, (100 << 20) + 1, (1 << 31) - 1, -(1 << 31)))
        return struct.pack(">i", length) + chance.choice((b"", bytes(8), API_VERSIONS))


class SaslFrames:
    """Handshakes and tokens of SASL in any order, with requests of other APIs between them."""

    def __init__(self, seed: int, _apis: list[tuple[Api, int]]) -> None:
        self._random = random.Random(seed)

    def frame(self) -> bytes:
        """The next frame."""
        chance = self._random
        match chance.randrange(5):
            case 0:
                mechanism = chance.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "", "x" * 30_000))
                name = mechanism.encode()
                version = chance.choice((0, 1))
                return framed(struct.pack(">hhih", 17, version, 1, -1) + struct.pack(">h", len(name)) + name)
            case 1:
                return framed(self._token())
            case 2:
                token = self._token()
                return framed(struct.pack(">hhih", 36, 0, 1, -1) + struct.pack(">i", len(token)) + token)
            case 3:
                return API_VERSIONS
            case _:
                return _frame(MetadataRequest(topics=[]), 3, 5, 1)

    def _token(self) -> bytes:
        chance = self._random
        return chance.choice(
            (
                b"",
                b"\0\0",
                b"\0admin\0wrong",
                b"\0" + b"u" * 60_000 + b"\0p",
                b"n,,n=user,r=" + b"r" * chance.choice((1, 24, 60_000)),
                b"n,,n=a=2Cb=3D,r=x",
                b"c=biws,r=x,p=" + b"A" * 44,
                chance.randbytes(200),
            )
        )
