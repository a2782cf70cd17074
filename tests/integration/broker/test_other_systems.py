"""A broker and commands without the calls that only Linux has; see `tests.peers.other_system`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.peers import probe

ROOT = Path(__file__).resolve().parents[3]
RECORDS = 500
TIMEOUT_S = 120


def test_records_are_written_and_read_with_and_without_tls(tmp_path: Path) -> None:
    kctl = [sys.executable, "-m", "tests.peers.other_system"]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    folder = tmp_path / "data"
    plain = f"127.0.0.1:{probe.free_port()}"

    def run(*words: str, stdin: str = "") -> str:
        ran = subprocess.run(
            [*kctl, *words],
            cwd=ROOT,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    listeners = f"listeners=SASL_SSL://127.0.0.1:0,PLAINTEXT://{plain}"
    start = [*kctl, "broker", "start", "--secure", "--data-dir", str(folder), "-o", listeners, "-o", "metrics.port=0"]
    start += ["-o", "allow.everyone.if.no.acl.found=true"]
    with subprocess.Popen(start, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        log = ""
        for line in broker.stderr:
            log += line
            if "broker serving on" in line:
                break
        try:
            secure = ("--command-config", str(folder / "security" / "client.properties"))
            run("topics", "create", "orders", *secure)
            records = "".join(f"record {number} {'x' * 1000}\n" for number in range(RECORDS))
            run("produce", "orders", *secure, stdin=records)
            for client in (secure, ("--bootstrap-server", plain)):
                assert run("consume", "orders", *client).count("record ") == RECORDS
        finally:
            broker.terminate()
            log += broker.stderr.read()
    assert (broker.returncode, "Traceback" in log) == (0, False), log
