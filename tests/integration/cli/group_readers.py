"""`kctl consume --group` as a background process, and the state of its group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.peers import probe

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Kctl

ROOT = Path(__file__).parent.parent.parent.parent
TIMEOUT_S = 120
STOP_TIMEOUT_S = 60


class Reader:
    """`kctl consume --group` with the group named like the topic; its output goes to a file."""

    def __init__(
        self, bootstrap: str, topic: str, out: Path, *, config: Path | None = None, assignor: str | None = None
    ) -> None:
        self.out = out
        self.err = out.with_suffix(".err")
        command = [sys.executable, "-m", "kctl", "consume", topic, "--group", topic, "--follow", "--format", "jsonl"]
        command += ["--command-config", str(config)] if config else []
        command += ["--assignor", assignor] if assignor else []
        with out.open("wb") as stdout, self.err.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, stdout=stdout, stderr=stderr, cwd=ROOT, env=os.environ | {"KCTL_BOOTSTRAP_SERVER": bootstrap}
            )

    @property
    def records(self) -> list[dict[str, Any]]:
        """The whole lines so far."""
        lines = self.out.read_bytes().rpartition(b"\n")[0].splitlines()
        return [json.loads(line) for line in lines]

    @property
    def values(self) -> list[str]:
        return [record["value"] for record in self.records]

    def end(self, number: signal.Signals) -> int:
        """Its exit status after this signal."""
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)


def fill(kctl: Kctl, topic: str, values: range) -> list[str]:
    """The values, spread over all three partitions."""
    lines = "".join(f"{value}:{value}\n" for value in values)
    assert kctl(f"produce {topic} --key-separator :", stdin=lines.encode()).status == 0
    return [str(value) for value in values]


def partitions_of_members(kctl: Kctl, group: str) -> list[int]:
    """How many partitions each member has; none while there is no such group."""
    return sorted(int(row[5]) for row in kctl(f"groups members {group}").rows if row[5] != "-")


def lag(kctl: Kctl, group: str) -> int:
    return sum(int(row[5]) for row in kctl(f"groups describe {group}").rows if row[5] != "-")


def await_values(what: list[str], *readers: Reader) -> None:
    def claim() -> bool:
        return set(what) <= {value for reader in readers for value in reader.values}

    probe.wait_until(claim, what=f"{len(what)} records shown", timeout_s=TIMEOUT_S)
