"""Floods of valid but expensive, odd or empty requests leave no failure in the log, and the broker serves others."""

from __future__ import annotations

import contextlib
import random
import select
import socket

import pytest

from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.hostile.frame_kinds import FloodFrames, LengthFrames, LongFrames, SaslFrames
from tests.hostile.fuzzing import Frames, advertised_apis, unexpected_lines
from tests.hostile.raw_client import Attacker, connected
from tests.peers.kctl_broker import KctlBroker

SEED = random.SystemRandom().randrange(1 << 31)


def send(bootstrap: str, frames: Frames, count: int) -> None:
    """Sends frames on connections that the broker may close, reading whatever it sends meanwhile."""
    while count:
        with connected(bootstrap) as sock, contextlib.suppress(OSError):
            while count:
                count -= 1
                unsent = frames.frame()
                while unsent:
                    readable, writable, _ = select.select([sock], [sock], [], 60)
                    if readable and not sock.recv(1 << 20):
                        break
                    if writable:
                        unsent = unsent[sock.send(unsent[: 1 << 16]) :]
                else:
                    continue
                break
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 20):
                pass


@pytest.mark.parametrize(
    ("kind", "count"), [(LongFrames, 30), (FloodFrames, 600), (LengthFrames, 300), (SaslFrames, 300)]
)
def test_a_flood_leaves_no_failure_and_others_are_served(broker: KctlBroker, kind: type, count: int) -> None:
    with connected(broker.bootstrap) as sock:
        apis = advertised_apis(sock)
    before = len(broker.log_text)
    send(broker.bootstrap, kind(SEED, apis), count)
    with Attacker(broker.bootstrap) as client:
        assert client.call(MetadataRequest(topics=[]), MetadataResponse, 5).brokers
    assert not unexpected_lines(broker.log_text[before:]), f"seed {SEED}"
