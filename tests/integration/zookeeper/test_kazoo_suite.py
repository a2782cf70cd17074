"""kazoo's own tests that need one server pass as on Apache ZooKeeper 3.8: 304 of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients

ROOT = Path(__file__).parents[3]
PASSED_BY_APACHE_ZOOKEEPER = 304
NOT_FOR_ONE_SERVER = (
    *("TestSSLClient", "TestReconfig", "ReadOnlyMode", "update_host_list", "test_sasl"),
    *("gevent", "eventlet", "test_build"),
)
"""Tests that need several servers, TLS, SASL, or threads of other libraries."""
RACES = ("test_connection_dropped", "test_watch_iterations")
"""They fail if a server sends a megabyte before they close its connection, or they pause for half a second."""


TEST_TIMEOUT_S = 120
SUITE_TIMEOUT_S = 1200
"""It takes 80 s on an idle machine, and a multiple of that beside other tests."""


@pytest.mark.timeout(SUITE_TIMEOUT_S + 60)
def test_kazoos_own_suite_passes(tmp_path: Path) -> None:
    for module in ("objgraph", "OpenSSL", "jks"):
        pytest.importorskip(module, reason="kazoo's tests need objgraph, pyOpenSSL and pyjks")
    command = [
        *(sys.executable, "-m", "pytest", "-v", "-rf", "--tb=short", "-p", "no:cacheprovider", "-o", "addopts="),
        *("-p", "tests.integration.zookeeper.kazoo_plugin", "--pyargs", "kazoo.tests", "--durations=10"),
        *(f"--timeout={TEST_TIMEOUT_S}", "-k", " and ".join(f"not {name}" for name in (*NOT_FOR_ONE_SERVER, *RACES))),
    ]
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "ZOOKEEPER_VERSION"}}
    environment |= {"KCTL_ZOOKEEPER_FOLDER": str(tmp_path / "zookeeper"), "PYTHONPATH": str(ROOT)}
    with (tmp_path / "output").open("w+") as output:
        try:
            suite = subprocess.run(
                command,
                check=False,
                cwd=tmp_path,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SUITE_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            output.seek(0)
            error.add_note(output.read()[-3000:])  # the test that runs is in the last line
            raise
        output.seek(0)
        text = output.read()
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|error|errors|skipped)", text)}
    assert counts.get("failed", 0) == 0, text[-6000:]
    assert counts.get("passed") == PASSED_BY_APACHE_ZOOKEEPER, text[-6000:]
    assert suite.returncode == 0
