"""The embedded server responds to every request as Apache ZooKeeper does, zxids and watch events included.

Random requests of every kind by hand-made bytes, on both servers with empty folders.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.zookeeper.random_requests import play, random_requests
from tests.peers.apache_zookeeper import apache_zookeeper, why_not
from tests.peers.embedded_zookeeper import embedded_zookeeper

LENGTH = 700


@pytest.mark.jvm
@pytest.mark.parametrize("seed", range(3))
def test_every_response_equals_that_of_apache_zookeeper(tmp_path: Path, seed: int) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    steps = random_requests(seed, LENGTH)
    with apache_zookeeper(tmp_path / "apache") as connect:
        expected = play(connect, steps)
    with embedded_zookeeper(tmp_path / "embedded") as server:
        responses = play(server.connect, steps)
    for mine, theirs in zip(responses, expected, strict=False):
        assert mine == theirs, f"seed {seed}"
    assert len(responses) == len(expected)
