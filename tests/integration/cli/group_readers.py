"""`kctl consume --group` as a background process, and the state of its group."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.peers import probe
from tests.peers.forked_kctl import forked_kctl

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
        words = ["consume", topic, "--group", topic, "--follow", "--format", "jsonl"]
        words += ["--command-config", str(config)] if config else []
        words += ["--assignor", assignor] if assignor else []
        with open(os.devnull, "rb") as nothing, out.open("wb") as stdout, self.err.open("wb") as stderr:
            streams = [nothing.fileno(), stdout.fileno(), stderr.fileno()]
            environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": bootstrap}
            self.process = forked_kctl().start(words, streams=streams, environment=environment)

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
