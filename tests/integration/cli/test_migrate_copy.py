"""The commands of docs/migrate-copy.md move topics and a group to Apache Kafka 4 and back, each record once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Kctl, command_line
from tests.integration.cli.group_readers import ROOT
from tests.peers import apache_kafka
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import kctl_broker

pytestmark = pytest.mark.jvm

PAGE = ROOT / "docs/migrate-copy.md"
_LINE = re.compile(r"^ *\$ (kctl .*)$", re.MULTILINE)
RECORDS = 200


class Page:
    """The command lines of the page, in their order, with the addresses of two real clusters.

    What runs until it is stopped ends when everything is copied, and nothing is waited for.
    """

    def __init__(self, old: str, new: str, folder: Path) -> None:
        text = PAGE.read_text(encoding="utf-8")
        self._lines = [line.replace("old:9092", old).replace("new:9092", new) for line in _LINE.findall(text)]
        self._plan = str(folder / "move.json")

    def run_next(self, verb: str) -> str:
        line = self._lines.pop(0)
        words = [self._plan if word == "move.json" else word for word in shlex.split(line)[1:]]
        assert words[1] == verb, line
        more = {
            "copy-start": ["--once"],
            "copy-cutover": ["--quiet-time", "50ms"],
            "copy-back": ["--quiet-time", "50ms"],
        }
        ran = run_kctl(*words, *more.get(verb, []))
        assert ran.returncode == 0, (line, ran.stdout, ran.stderr)
        return ran.stdout + ran.stderr

    def is_at_end(self) -> bool:
        return not self._lines


def values(kctl: Kctl, words: str) -> list[str]:
    ran = kctl(f"consume {words} --format csv")
    assert ran.status == 0, ran.err
    return re.findall(r"r-[0-9]+", ran.out)


def write(kctl: Kctl, first: int, count: int) -> None:
    for partition in (0, 1):
        lines = "".join(f"r-{number}\n" for number in range(first, first + count) if number % 2 == partition)
        assert kctl(f"produce shop-orders --partition {partition}", lines.encode()).status == 0


def numbers(first: int, end: int) -> list[str]:
    return sorted(f"r-{number}" for number in range(first, end))


def test_commands_of_the_page_move_a_cluster_and_bring_it_back(broker_of: Callable[[str], str], tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    new_address = broker_of(apache_kafka.NEWEST_BROKER)
    with kctl_broker(tmp_path / "old") as broker:
        old, new = (
            command_line({"KCTL_BOOTSTRAP_SERVER": address, "XDG_STATE_HOME": str(tmp_path / "state")})
            for address in (broker.bootstrap, new_address)
        )
        page = Page(broker.bootstrap, new_address, tmp_path)
        limits = "--set max.message.bytes=2000000 --set segment.bytes=65536"
        assert old(f"topics create shop-orders --partitions 2 {limits}").status == 0
        assert old("topics create shop-prices --set cleanup.policy=compact").status == 0
        assert old("quotas alter --user shop --consumer-rate 12345 --yes").status == 0
        assert old("produce shop-prices --key-separator :", b"a:r-1\na:r-2\n").status == 0
        write(old, 0, RECORDS)
        assert len(values(old, "shop-orders --group billing -n 70")) == 70

        planned = page.run_next("copy-plan")
        assert "segment.bytes\t65536" in planned  # Kafka 4.3 refuses less than 1 MiB.
        assert "not carried" in planned
        page.run_next("copy-start")
        assert "2000000" in new("configs describe topic shop-orders --property max.message.bytes").out
        assert "12345" in new("quotas describe --user shop").out
        write(old, RECORDS, 10)
        assert old("migrate copy-status --plan " + str(tmp_path / "move.json")).status == 3
        assert new("migrate copy-start --yes --once --plan " + str(tmp_path / "move.json")).status == 0
        page.run_next("copy-status")

        page.run_next("copy-cutover")
        assert sorted(values(new, "shop-orders")) == numbers(0, RECORDS + 10)
        assert len(values(new, "shop-orders --group billing")) == RECORDS + 10 - 70
        write(new, RECORDS + 10, 6)
        assert sorted(values(new, "shop-orders --group billing")) == numbers(RECORDS + 10, RECORDS + 16)

        page.run_next("copy-back")
        assert page.is_at_end()
        assert sorted(values(old, "shop-orders")) == numbers(0, RECORDS + 16)
        assert values(old, "shop-orders --group billing") == []
        write(old, RECORDS + 16, 2)
        assert sorted(values(old, "shop-orders --group billing")) == numbers(RECORDS + 16, RECORDS + 18)
