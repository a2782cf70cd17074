"""Random and mutated requests to every API and version that a broker advertises, beside a client with valid requests.

    python -m tests.hostile.fuzzing --minutes 10 --seed 7 --security tls

starts a broker, measures a valid producer while nothing else happens, then while several connections send hostile
requests as fast as they can, then again while nothing else happens.  With `--rounds 3` there are three such attacks,
each with another seed, so that memory which grows with the number of requests is found.

It prints one JSON object: requests sent, latencies of the valid producer, memory, the iterations of the event loop, and
whatever the broker logged as an error.  The second quiet measurement begins when the broker has done what the attack
requested, such as deletions of topics (backlog_s).  The latencies contain what other processes do to the machine, as
the two quiet measurements show if they differ; the processor time of the iterations (cpu_p99.9_ms, cpu_max_ms) does
not.  The exit status is 1 if a record of the valid client is missing or doubled, or the broker logged a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import re
import select
import signal
import socket
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.protocol import codec
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest
from kctl.protocol.definition import Field, definition_of
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.protocol.registry import Api, api
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import Record
from tests.hostile.frame_kinds import FloodFrames, LengthFrames, LongFrames, SaslFrames
from tests.hostile.raw_client import API_VERSIONS, framed, receive_frame
from tests.peers import probe
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.sasl_broker import ADMIN, ADMIN_PASSWORD, sasl_broker

VALID = "valid"
IDLE_S = 1.0
IDLE_SHARE_MAX = 0.05
"""A broker that uses less of a processor for IDLE_S is idle."""
BACKLOG_S_MAX = 120.0
_NAMES = ("a", "b.c", "fuzz-1", "fuzz-2", "__consumer_offsets", "__transaction_state", "../../victim", "..", "")
_TEXTS = (
    *_NAMES,
    "g1",
    "g2",
    "x" * 249,
    "x" * 32_000,
    "\0",
    "\x1b[2J",
    "\u202e",
    "é" * 99,
    "%s%n",
    "consumer",
    "PLAINTEXT",
    "0",
)
_INTEGERS = (0, 1, -1, 2, 3, 100, 1 << 15, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 40)
_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
_DANGEROUS = frozenset({"num_partitions", "count"})
"""Fields in which random values would only cause much legitimate work."""


class Fuzzer:
    """Generates requests from a seed."""

    def __init__(self, seed: int, apis: list[tuple[Api, int]]) -> None:
        self._random = random.Random(seed)
        self._apis = apis
        self._has_empty_arrays = False
        self._fields_before_mutation: int | None = None
        """Fields that get a valid value before one field gets a random value; None for random values everywhere."""

    def frame(self) -> bytes:
        """The next request, which may be malformed in any way."""
        chance = self._random
        if chance.random() < 0.02:
            return chance.randbytes(chance.randrange(1, 200))
        api, version = chance.choice(self._apis)
        header = RequestHeader(api.key, version, chance.getrandbits(31), chance.choice(_TEXTS))
        payload = encode_request_header(header) + self._body(api, version)
        if chance.random() < 0.3:
            payload = _mutated(payload, chance)
        return framed(payload)

    def _body(self, api: Api, version: int) -> bytes:
        chance = self._random
        shape = chance.random()
        self._has_empty_arrays = shape < 0.1
        self._fields_before_mutation = chance.randrange(40) if 0.1 <= shape < 0.4 else None
        with contextlib.suppress(ValueError):
            return codec.encode_bytes(self._message(api.request, version), version)
        return self._random.randbytes(self._random.randrange(100))

    def _message(self, cls: type, version: int) -> Any:
        fields = [declared for declared in definition_of(cls).fields if version in declared.versions]
        return cls(**{declared.name: self._value(declared, version) for declared in fields})

    def _value(self, spec: Field, version: int) -> Any:
        chance = self._random
        may_be_null = version in spec.nullable or (spec.struct is not None and spec.tag is not None)
        if may_be_null and chance.random() < 0.2:
            return None
        if spec.struct is not None:
            return self._message(spec.struct, version)
        if spec.element is not None:
            if self._has_empty_arrays:
                return []
            count = chance.choice((0, 1, 1, 2, 3, 30)) if self._fields_before_mutation is None else 1
            return [self._value(spec.element, version) for _ in range(count)]
        if self._fields_before_mutation is None:
            return self._scalar(spec)
        self._fields_before_mutation -= 1
        return self._scalar(spec) if self._fields_before_mutation == -1 else self._usual(spec)

    def _usual(self, spec: Field) -> Any:
        """A value that a client could send."""
        match spec.kind:
            case "string":
                return "fuzz-1"
            case "records":
                return build_batch([Record(0, 0, None, b"usual")])
            case "bytes":
                return b""
            case "boolean":
                return False
            case "float64":
                return 0.0
            case "uuid":
                return UUID(int=0)
            case _:
                return 1 if "timeout" in spec.name or spec.name == "acks" else 0

    def _scalar(self, spec: Field) -> Any:
        chance = self._random
        if spec.kind in _BITS:
            value = chance.choice((0, 1, 2, -1, 1 << 30)) if spec.name in _DANGEROUS else chance.choice(_INTEGERS)
            bits = _BITS[spec.kind]
            value &= (1 << bits) - 1
            return value if spec.kind.startswith("u") or value < 1 << bits - 1 else value - (1 << bits)
        match spec.kind:
            case "boolean":
                return chance.random() < 0.5
            case "float64":
                return chance.choice((0.0, -1.0, float("inf"), float("nan"), 1e308))
            case "uuid":
                return UUID(int=chance.getrandbits(128))
            case "string":
                return chance.choice(_NAMES if "name" in spec.name or "topic" in spec.name else _TEXTS)
            case "records":
                return self._records()
            case _:
                return chance.randbytes(chance.choice((0, 1, 10, 1_000)))

    def _records(self) -> bytes:
        chance = self._random
        # The last size is a bomb when it is compressed; it is rare because making it takes long.
        size = chance.choices((0, 10, 1_000, 100_000, 8 << 20), weights=(30, 30, 30, 10, 0.3))[0]
        records = [Record(0, n, None, bytes(size), ()) for n in range(chance.randrange(1, 5))]
        batch = bytearray(build_batch(records, codec=chance.choice(list(Codec))))
        for _ in range(chance.choice((0, 0, 1, 3))):
            batch[chance.randrange(len(batch))] = chance.randrange(256)
        return bytes(batch)


class HandshakeFuzzer:
    """Makes the first bytes of TLS connections, from a seed."""

    def __init__(self, seed: int, _apis: list[tuple[Api, int]]) -> None:
        self._random = random.Random(seed)

    def frame(self) -> bytes:
        """A ClientHello, whole or mutated, or random bytes."""
        chance = self._random
        if chance.random() < 0.05:
            return chance.randbytes(chance.randrange(1, 20_000))
        outgoing = ssl.MemoryBIO()
        client = _trusting_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        hello = outgoing.read()
        return hello if chance.random() < 0.2 else _mutated(hello, chance) or hello[:1]


def _mutated(payload: bytes, chance: random.Random) -> bytes:
    data = bytearray(payload)
    for _ in range(chance.randrange(1, 4)):
        if not data:
            break
        position = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[position] = chance.randrange(256)
            case 1:
                del data[position:]
            case 2:
                data[position:position] = chance.randbytes(chance.randrange(1, 20))
            case _:
                data[position : position + 4] = struct.pack(">i", chance.choice((-1, (1 << 31) - 1, 1 << 20)))
    return bytes(data)


def advertised_apis(sock: socket.socket) -> list[tuple[Api, int]]:
    """Every API and version in the broker's ApiVersions response that kctl defines."""
    sock.sendall(API_VERSIONS)
    body = receive_frame(sock)[10:]
    served = [struct.unpack_from(">hhh", body, position) for position in range(0, len(body) - 5, 6)]
    return [
        (known, version) for key, first, last in served if (known := api(key)) for version in range(first, last + 1)
    ]


def _connect(bootstrap: str) -> socket.socket:
    host, port = bootstrap.split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _connect_and_authenticate(bootstrap: str) -> socket.socket:
    """An authenticated connection."""
    return _authenticated(_connect(bootstrap))


def _connect_with_tls_and_authenticate(bootstrap: str) -> socket.socket:
    return _authenticated(_connect_with_tls(bootstrap))


def _authenticated(sock: socket.socket) -> socket.socket:
    token = f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode()
    for request, key, version in (
        (SaslHandshakeRequest(mechanism="PLAIN"), 17, 1),
        (SaslAuthenticateRequest(auth_bytes=token), 36, 0),
    ):
        header = RequestHeader(key, version, 1, "fuzz")
        sock.sendall(framed(encode_request_header(header) + codec.encode_bytes(request, version)))
        receive_frame(sock)
    return sock


def _connect_with_tls(bootstrap: str) -> socket.socket:
    return _trusting_context().wrap_socket(_connect(bootstrap), server_hostname="localhost")


def _trusting_context() -> ssl.SSLContext:
    """Settings of a client that accepts every certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Frames(Protocol):
    """What a connection of the attack sends."""

    def frame(self) -> bytes:
        """The next request."""


@dataclass(frozen=True)
class Security:
    """The listener that is attacked, and how far a connection gets before the attack begins."""

    connect: Callable[[str], socket.socket]
    has_sasl: bool = False
    has_tls: bool = False
    api_keys: frozenset[int] | None = None
    """The APIs of the requests; None for all.  Others only close a connection that has not authenticated."""
    frames: Callable[[int, list[tuple[Api, int]]], Frames] = Fuzzer
    """Makes what the connections send, from a seed and the APIs."""
    connect_for_requests: Callable[[str], socket.socket] | None = None
    """Opens the connection that requests the API versions; None for one like the others."""


_BEFORE_AUTHENTICATION = frozenset({17, 18, 36})
"""SaslHandshake, ApiVersions, SaslAuthenticate."""
SECURITY = {
    "plaintext": Security(_connect),
    "tls-before-handshake": Security(
        _connect, has_tls=True, frames=HandshakeFuzzer, connect_for_requests=_connect_with_tls
    ),
    "tls": Security(_connect_with_tls, has_tls=True),
    "sasl-before-authentication": Security(_connect, has_sasl=True, api_keys=_BEFORE_AUTHENTICATION),
    "sasl-after-authentication": Security(_connect_and_authenticate, has_sasl=True),
    "sasl-ssl-before-handshake": Security(
        _connect, has_sasl=True, has_tls=True, frames=HandshakeFuzzer, connect_for_requests=_connect_with_tls
    ),
    "sasl-ssl-before-authentication": Security(
        _connect_with_tls, has_sasl=True, has_tls=True, api_keys=_BEFORE_AUTHENTICATION
    ),
    "sasl-ssl-after-authentication": Security(_connect_with_tls_and_authenticate, has_sasl=True, has_tls=True),
}
"""The values of --security."""


FRAMES: dict[str, Callable[[int, list[tuple[Api, int]]], Frames]] = {
    "mutated": Fuzzer,
    "long": LongFrames,
    "floods": FloodFrames,
    "lengths": LengthFrames,
    "sasl": SaslFrames,
}
"""The values of --frames."""


class Attack:
    """A process with several connections that send requests as fast as the broker accepts them."""

    def __init__(
        self,
        bootstrap: str,
        seed: int,
        *,
        connections: int,
        requests_max: int | None = None,
        security: str = "plaintext",
        frames: str | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._sent = context.Value("q", 0)
        self._is_stopping = context.Event()
        self._process = context.Process(
            target=_attack,
            args=(bootstrap, seed, connections, requests_max, security, frames, self._sent, self._is_stopping),
            daemon=True,
        )
        self._process.start()

    @property
    def sent(self) -> int:
        """Number of requests so far."""
        return int(self._sent.value)

    def join(self) -> None:
        """Waits until `requests_max` requests have been sent."""
        self._process.join()
        assert self._process.exitcode == 0

    def stop(self) -> None:
        """Stops the attack."""
        self._is_stopping.set()
        self.join()


def _attack(
    bootstrap: str,
    seed: int,
    connections: int,
    requests_max: int | None,
    security: str,
    frames: str | None,
    sent: Any,
    is_stopping: Any,
) -> None:
    kind = SECURITY[security]
    with (kind.connect_for_requests or kind.connect)(bootstrap) as requesting:
        apis = [
            (api, version) for api, version in advertised_apis(requesting) if api.key in (kind.api_keys or {api.key})
        ]
    fuzzer = (kind.frames if frames is None else FRAMES[frames])(seed, apis)
    chance = random.Random(seed + 1)
    attackers: dict[socket.socket, _Attacker] = {}
    while not is_stopping.is_set() and (requests_max is None or sent.value < requests_max):
        while len(attackers) < connections:
            with contextlib.suppress(OSError, EOFError):
                sock = kind.connect(bootstrap)
                sock.setblocking(False)
                attackers[sock] = _Attacker(sock, chance.choices(list(Manner), weights=_WEIGHTS)[0], chance)
        readable, writable, _ = select.select(attackers, attackers, [], 1)
        for sock in {*readable, *writable}:
            sent.value += sock in writable
            is_readable = sock in readable or (isinstance(sock, ssl.SSLSocket) and sock.pending() > 0)
            if not attackers[sock].act(fuzzer, is_readable=is_readable, is_writable=sock in writable):
                del attackers[sock]
                sock.close()
    for sock in attackers:
        sock.close()


class Manner(Enum):
    """The behaviour of a connection of the attack."""

    EAGER = "sends requests and reads responses"
    HALTING = "sends each frame in pieces, between those of the others"
    SILENT = "declares the length of a frame that never comes"
    DEAF = "never reads a response"
    DRIPPING = "sends one byte a second"
    HALF_CLOSED = "sends some requests, then ends its sending, and reads on"


_WEIGHTS = (12, 4, 1, 2, 1, 1)
"""The weight of each behaviour."""
_TURNS_MAX = 5_000
"""Turns after which a connection that does not send or does not read is closed."""
_TURNS_BEFORE_END = 20


_PASSIVE = frozenset({Manner.SILENT, Manner.DEAF, Manner.DRIPPING, Manner.HALF_CLOSED})


class _Attacker:
    """One connection of the attack."""

    def __init__(self, sock: socket.socket, manner: Manner, chance: random.Random) -> None:
        self._sock = sock
        self._manner = manner
        self._chance = chance
        self._unsent = b""
        self._turns = 0
        self._drips_at_s = 0.0

    def act(self, fuzzer: Frames, *, is_readable: bool, is_writable: bool) -> bool:
        """Discards responses, sends the next bytes; returns whether the connection is still usable."""
        self._turns += 1
        if self._manner in _PASSIVE and self._turns > _TURNS_MAX:
            return False
        try:
            if is_readable and self._manner is not Manner.DEAF and not self._sock.recv(1 << 20):
                return False
            if is_writable:
                self._send(fuzzer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except OSError:
            return False
        return True

    def _send(self, fuzzer: Frames) -> None:
        if self._manner is Manner.SILENT:
            if self._turns == 1:
                self._sock.send(struct.pack(">i", self._chance.choice((1, 1 << 10, 100 << 20))))
            return
        if self._manner is Manner.HALF_CLOSED and self._turns > _TURNS_BEFORE_END:
            if self._turns == _TURNS_BEFORE_END + 1:
                self._sock.shutdown(socket.SHUT_WR)
            return
        if self._manner is Manner.DRIPPING:
            now_s = time.monotonic()
            if now_s < self._drips_at_s:
                return
            self._drips_at_s = now_s + 1
        if not self._unsent:
            self._unsent = fuzzer.frame()
        size = 1 if self._manner is Manner.DRIPPING else len(self._unsent)
        if self._manner is Manner.HALTING:
            size = self._chance.randrange(1, size + 1)
        self._unsent = self._unsent[self._sock.send(self._unsent[:size]) :]
        if self._manner is Manner.EAGER:
            # Bytes that the socket does not accept are lost, so the rest of the connection is malformed as well.
            self._unsent = b""


@dataclass
class ValidClient:
    """A producer that sends numbered records in sequence, and a consumer that checks that all of them are there."""

    bootstrap: str
    sent: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def prepare(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(VALID, 1, 1)])[VALID].result(60)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def produce(self, count: int) -> list[float]:
        """Sends `count` records, each when the one before has been acknowledged; returns the seconds of each."""
        latencies = []
        for _ in range(count):
            began_s = time.perf_counter()
            self._producer.produce(VALID, str(self.sent).encode(), partition=0, on_delivery=_raise_error)
            if self._producer.flush(60):
                raise TimeoutError("a record of the valid client was not acknowledged within 60 s")
            latencies.append(time.perf_counter() - began_s)
            self.sent += 1
        return latencies

    def consumed(self) -> list[int]:
        """All records of the topic, in order."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": VALID, "enable.auto.commit": False})
        consumer.assign([TopicPartition(VALID, 0, OFFSET_BEGINNING)])
        numbers: list[int] = []
        end_s = time.monotonic() + 120
        while len(numbers) < self.sent and time.monotonic() < end_s:
            numbers += [
                int(message.value() or b"") for message in consumer.consume(10_000, 1.0) if message.error() is None
            ]
        consumer.close()
        return numbers

    def close(self) -> None:
        """Closes the producer's connections, which otherwise reports that the broker stops."""
        del self._producer


def _raise_error(error: Any, _message: Any) -> None:
    if error is not None:
        raise KafkaException(error)


def percentile_ms(latencies_s: list[float], share: float) -> float:
    return round(sorted(latencies_s)[min(int(len(latencies_s) * share), len(latencies_s) - 1)] * 1000, 2)


def percentiles_ms(latencies_s: list[float]) -> dict[str, float]:
    return {"p50": percentile_ms(latencies_s, 0.5), "p99": percentile_ms(latencies_s, 0.99)}


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def unexpected_lines(log_text: str) -> list[str]:
    """Lines of the broker's log that report unexpected errors."""
    return [line for line in log_text.splitlines() if line.startswith("Traceback") or " ERROR " in line][:20]


def slow_iterations(log_text: str) -> list[str]:
    """The iterations of the event loop above 20 ms, those that took the most processor time first."""
    slow = [line.partition("busy ")[2] for line in log_text.splitlines() if "event loop was busy " in line]
    return sorted(slow, key=lambda line: sum(map(float, re.findall(r" cpu_\w+=(\S+)", line))), reverse=True)[:30]


@contextlib.contextmanager
def broker_for_fuzzing(folder: Path, security: Security) -> Iterator[tuple[KctlBroker, str]]:
    """A broker that measures the processor time of its event loop, and the address to attack."""
    properties: dict[str, str] = {}
    if security.has_tls:
        server = CertificateAuthority.create(folder).issue("server")
        properties = {
            "ssl.keystore.location": str(server.pkcs12),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
        }
    if security.has_sasl:
        if security.has_tls:
            protocols = "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,REAUTH:SASL_PLAINTEXT"
            properties["listener.security.protocol.map"] = protocols
        with sasl_broker(folder / "sasl", properties=properties, run_by=_MEASURED) as started:
            yield started.process, started.sasl
    elif security.has_tls:
        plain, attacked = probe.free_port(), probe.free_port()
        properties["listeners"] = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{attacked}"
        with kctl_broker(folder / "data", properties=properties, port=plain, run_by=_MEASURED) as broker:
            yield broker, f"127.0.0.1:{attacked}"
    else:
        with kctl_broker(folder / "data", run_by=_MEASURED) as broker:
            yield broker, broker.bootstrap


_MEASURED = ("env", "KCTL_MEASURE_LOOP_CPU=1")


@dataclass(frozen=True)
class Round:
    """What was observed during one attack and some seconds afterwards."""

    requests: int
    latencies_s: list[float]
    """Of the valid client."""
    resident_mb_max: int
    resident_mb_after: int


def attacked_round(valid: ValidClient, pid: int, attacked_at: str, options: argparse.Namespace, seed: int) -> Round:
    """Attacks for some minutes, while the valid client produces."""
    attack = Attack(
        attacked_at, seed, connections=options.connections, security=options.security, frames=options.frames
    )
    latencies_s: list[float] = []
    resident: list[int] = []
    end_s = time.monotonic() + options.minutes * 60
    while time.monotonic() < end_s:
        latencies_s += valid.produce(100)
        resident.append(resident_bytes(pid) >> 20)
    attack.stop()
    valid.produce(2_000)
    return Round(attack.sent, latencies_s, max(resident), resident_bytes(pid) >> 20)


@contextlib.contextmanager
def state_on_failure(broker: KctlBroker) -> Iterator[None]:
    """If a round fails, writes the end of the broker's log to stderr, and its tasks and threads if it still runs."""
    try:
        yield
    except BaseException:
        dump = broker.data_dir / "broker.dump"
        if broker.is_running:
            os.kill(broker.pid, signal.SIGUSR1)
            with contextlib.suppress(TimeoutError):
                probe.wait_until(dump.exists, what="the broker has written its dump", timeout_s=10)
        lines = [line[:_LINE_MAX] for line in broker.log_text.splitlines()[-_LOG_LINES:]]
        dumped = dump.read_text() if dump.exists() else "no dump"
        sys.stderr.write("\n".join([f"the broker runs: {broker.is_running}", *lines, dumped, ""]))
        raise


_LOG_LINES = 300
_LINE_MAX = 1_000


def wait_until_idle(pid: int) -> float:
    """Waits until the broker has done what the attack requested, such as deletions of topics; returns the seconds."""
    began_s = time.monotonic()

    def is_idle() -> bool:
        before_s = cpu_seconds(pid)
        time.sleep(IDLE_S)
        return cpu_seconds(pid) - before_s < IDLE_S * IDLE_SHARE_MAX

    probe.wait_until(is_idle, what="the broker is idle", timeout_s=BACKLOG_S_MAX)
    return time.monotonic() - began_s


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration of each round")
    parser.add_argument("--rounds", type=int, default=1, help="attacks on the same broker, each with the next seed")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--frames", choices=sorted(FRAMES), help="what is sent; by default what suits --security")
    parser.add_argument("--security", choices=sorted(SECURITY), default="plaintext")
    options = parser.parse_args()
    sys.stderr.write(f"seed {options.seed}\n")
    security = SECURITY[options.security]
    with tempfile.TemporaryDirectory() as folder, broker_for_fuzzing(Path(folder), security) as (broker, attacked_at):
        valid = ValidClient(broker.bootstrap)
        valid.prepare()
        valid.produce(200)
        quiet = valid.produce(2_000)
        before = resident_bytes(broker.pid)
        with state_on_failure(broker):
            rounds = [
                attacked_round(valid, broker.pid, attacked_at, options, options.seed + number)
                for number in range(options.rounds)
            ]
        backlog_s = wait_until_idle(broker.pid)
        quiet_after = valid.produce(2_000)
        numbers = valid.consumed()
        valid.close()
        broker.stop()
        loop_lines = [line for line in broker.log_text.splitlines() if "event_loop" in line]
        slow = slow_iterations(broker.log_text)
        unexpected = unexpected_lines(broker.log_text)
    is_complete = numbers == list(range(valid.sent))
    attacked = [latency_s for round_ in rounds for latency_s in round_.latencies_s]
    report = {
        "seed": options.seed,
        "requests": sum(round_.requests for round_ in rounds),
        "valid_records": valid.sent,
        "valid_records_complete": is_complete,
        "valid_records_consumed": len(numbers),
        "valid_records_missing": sorted({*range(valid.sent)} - {*numbers})[:10],
        "quiet_ms": percentiles_ms(quiet),
        "attacked_ms": percentiles_ms(attacked),
        "quiet_after_ms": percentiles_ms(quiet_after),
        "backlog_s": round(backlog_s, 1),
        "p99_times_quiet": round(percentile_ms(attacked, 0.99) / percentile_ms([*quiet, *quiet_after], 0.99), 1),
        "resident_mb": {
            "before": before >> 20,
            "max": [round_.resident_mb_max for round_ in rounds],
            "after": [round_.resident_mb_after for round_ in rounds],
        },
        "event_loop": loop_lines[-1:],
        "slow_iterations": slow,
        "unexpected": unexpected,
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 0 if is_complete and not unexpected else 1


if __name__ == "__main__":
    sys.exit(main())
