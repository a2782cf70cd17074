"""Measures how many SCRAM logins per second a broker handles, and the cost of one.

    python -m benchmarks.scram_handshakes [--runs 5] [--seconds 3] [--apache-kafka]

Raw sockets: connect, SaslHandshake, two SaslAuthenticate requests, close, from CLIENTS connections at a time.  The
clients derive their keys once, so that the broker is measured and not PBKDF2.  With --apache-kafka the same for Apache
Kafka 3.9.1, in the same run.  Limits: a login is two HMACs and five system calls on each side, below 0.2 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
import tempfile
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, parser, pin
from kctl.security import scram
from kctl.security.scram import NONCE_BYTES, Mechanism, ScramClient
from tests.peers import probe
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, apache_kafka_process
from tests.peers.sasl_broker import sasl_broker

CLIENTS = 16
USER, PASSWORD = "bench", "bench-password"
MECHANISM = Mechanism.SCRAM_SHA_256
WARM_UP_S = 2.0


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--seconds", type=float, default=3, help="length of one run")
    options.add_argument("--apache-kafka", action="store_true", help="measure Apache Kafka 3.9.1 too")
    chosen = options.parse_args()
    # The same password, salt and iterations give the same key each time.
    scram.salted_password = lru_cache(scram.salted_password)  # What the module calls.
    subjects = {"kctl": ours}
    if chosen.apache_kafka:
        subjects["Apache Kafka"] = theirs
    figures = []
    for name, started in subjects.items():
        with tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder, started(Path(folder)) as (plaintext, broker):
            pin(broker.pid)
            create_user(plaintext)
            asyncio.run(logins(broker.bootstrap, WARM_UP_S))
            rates, costs_ms = [], []
            for _ in range(chosen.runs):
                before_s = broker.cpu_s()
                count = asyncio.run(logins(broker.bootstrap, chosen.seconds))
                rates.append(count / chosen.seconds)
                costs_ms.append((broker.cpu_s() - before_s) * 1000 / count)
        figures.append(Figure(f"SCRAM-SHA-256 logins, {name}", "1/s", rates))
        figures.append(Figure(f"processor time of a login, {name}", "ms", costs_ms))
    report("scram_handshakes", figures, clients=CLIENTS, runs=chosen.runs)


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[tuple[str, Subject]]:
    """A kctl broker: its address without authentication, and that with."""
    with sasl_broker(folder) as broker:
        yield broker.plaintext, Subject(broker.sasl, broker.process.pid)


@contextlib.contextmanager
def theirs(folder: Path) -> Iterator[tuple[str, Subject]]:
    """A broker of Apache Kafka with the same listeners."""
    plaintext, sasl = (f"127.0.0.1:{probe.free_port()}" for _ in range(2))
    properties = {
        "listeners": f"PLAINTEXT://{plaintext},SASL_PLAINTEXT://{sasl}",
        "sasl.enabled.mechanisms": MECHANISM.config_key,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    port = int(plaintext.rpartition(":")[2])
    with apache_kafka_process(LAST_WITH_ZOOKEEPER, folder / "kafka", port=port, properties=properties) as (_, process):
        yield plaintext, Subject(sasl, process.pid)


def create_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode(), b"a fixed salt of the benchmark")
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(30)


async def logins(bootstrap: str, seconds: float) -> int:
    """The number of logins in that time, of CLIENTS connections at a time."""
    end_s = time.monotonic() + seconds
    host, port = probe.address(bootstrap)

    async def repeat() -> int:
        count = 0
        while time.monotonic() < end_s:
            count += await log_in(host, port)
        return count

    return sum(await asyncio.gather(*(repeat() for _ in range(CLIENTS))))


async def log_in(host: str, port: int) -> int:
    """1 for a login, 0 if the user is not known yet."""
    reader, writer = await asyncio.open_connection(host, port)
    name = MECHANISM.config_key.encode()
    client = ScramClient(MECHANISM, user=USER, password=PASSWORD, nonce=secrets.token_urlsafe(NONCE_BYTES))
    writer.write(_request(17, struct.pack(">h", len(name)) + name))
    writer.write(_request(36, _bytes(client.first())))
    await _receive(reader)
    first = await _receive(reader)
    if first[4:6] != b"\0\0":
        writer.close()
        return 0
    message = client.respond(_auth_bytes(first))
    assert message is not None
    writer.write(_request(36, _bytes(message)))
    reply = await _receive(reader)
    is_accepted = reply[4:6] == b"\0\0"
    if is_accepted:
        client.respond(_auth_bytes(reply))
    writer.close()
    return int(is_accepted)


def _request(api_key: int, body: bytes) -> bytes:
    payload = struct.pack(">hhih", api_key, 1, 1, -1) + body
    return struct.pack(">i", len(payload)) + payload


def _bytes(token: bytes) -> bytes:
    return struct.pack(">i", len(token)) + token


async def _receive(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _auth_bytes(reply: bytes) -> bytes:
    """The token in a SaslAuthenticate response of version 1."""
    position = 8 + max(0, struct.unpack_from(">h", reply, 6)[0])
    (size,) = struct.unpack_from(">i", reply, position)
    return reply[position + 4 : position + 4 + size]


if __name__ == "__main__":
    main()
