"""Writes the terminal text in docs/stories.md: `python -m docs.capture_stories`.

Each story is a list of command lines, which are typed into bash on a pseudo-terminal, against three brokers.
tests/integration/cli/test_stories.py runs the same stories, and checks what each line shows.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import NamedTuple

from tests.peers.forked_kctl import write_program
from tests.peers.three_brokers import kctl_cluster

PAGE = Path(__file__).with_name("stories.md")
COLUMNS, LINES = 120, 40
SEGMENT = f"{0:020}.log"
TIMEOUT_S = 120
PROPERTIES = {"offsets.topic.num.partitions": "3"}
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_REDRAWN = re.compile(r"[^\n]*\r(?!\n)")


class Step(NamedTuple):
    """A line that is typed."""

    line: str
    shows: tuple[str, ...] = ()
    """Regular expressions that its output must match somewhere."""
    status: int = 0


class Story(NamedTuple):
    """A task, with the lines that solve it."""

    title: str
    steps: tuple[Step, ...]
    prepared: str = ""
    """A shell command that is not shown and runs before the first line."""


STORIES = (
    Story(
        "Who is behind, since when, and is it catching up?",
        (
            Step("kctl groups lag", (r"billing +Empty +4 +300 ", r"audit +Empty +4 +0 .* OK", r"unread records: 300")),
            Step("kctl groups lag billing --by partition --lag '>100'", (r"billing +orders +3 +0 +120 ",)),
            Step("kctl groups lag billing --lag '>200' --check --quiet", (r"billing",), status=3),
        ),
    ),
    Story(
        "Empty broker 2, service it, bring it back",
        (
            Step(
                "kctl reassign plan drain 2 --topic orders --throttle 50m --output drain.json",
                (r"\n +2 +\d+ +\d+ +0 ", r"kctl reassign execute drain-rollback\.json"),
            ),
            Step("kctl reassign execute drain.json --throttle 50m --wait --quiet", (r"orders +3 .* 0,1 .* complete",)),
            Step("kctl topics describe orders", (r"orders +3 +\d +\d+ +\d,\d ",)),
            Step(
                "kctl reassign execute drain-rollback.json --throttle 50m --wait --quiet",
                (r"orders +3 .* 0,2 .* complete",),
            ),
            Step("kctl cluster maintenance on 1 --yes", (r"orders +1 .* changed",)),
            Step("kctl cluster maintenance off 1 --yes", (r"orders +1 .* changed",)),
        ),
    ),
    Story(
        "Find the records of a key between two times, and replay them elsewhere",
        (
            Step(
                "kctl consume orders --from @2026-11-20T10:00:00Z --until @2026-11-20T10:05:00Z --key customer-7",
                (r"3 +2 +2026-11-20T10:01:10.000Z +customer-7 ", r"3 +10 .*27"),
            ),
            Step(
                "kctl copy orders replay --from @2026-11-20T10:00:00Z --until @2026-11-20T10:05:00Z --key customer-7",
                (r"3 of 30 records copied from orders to replay",),
            ),
            Step("kctl consume replay --format plain", (r'customer-7\t{"order": 27, "customer": 7}',)),
        ),
    ),
    Story(
        "Someone reset a group wrongly",
        (
            Step("kctl groups history audit", (r"orders +3 +120 +committed", r"orders +3 +0 +committed")),
            Step(
                "kctl groups restore audit", (r"saved before reset-offsets", r"audit +orders +3 +0 +120 +120 +would be")
            ),
            Step("kctl groups restore audit --yes", (r"audit +orders +3 +0 +120 +120 +restored",)),
            Step("kctl groups describe audit", (r"audit +orders +3 +120 +120 +0",)),
        ),
        prepared="kctl groups reset-offsets audit --all-topics --to-earliest --yes --quiet",
    ),
    Story(
        "This segment looks corrupt",
        (
            Step("kctl dump-log --summary orders-0", (r"LOST +\d+ to \d+ lost", r"wrong checksum"), status=1),
            Step("kctl dump-log --verify-only orders-0", (r"expected 0x", r"position \d+"), status=1),
            Step(f"mkdir saved && kctl dump-log --salvage saved orders-0/{SEGMENT}", (r"written to saved/",), status=1),
            Step(f"kctl dump-log --summary saved/{SEGMENT}", (r"RECORDS +[12]\d\n",)),
        ),
        prepared="cp -r {data}/broker-0/logs/orders-0 . && printf XXXX |"
        f" dd of=orders-0/{SEGMENT} bs=1 seek=700 conv=notrunc status=none",
    ),
)


class Typed(NamedTuple):
    """A line and what the terminal showed then."""

    step: Step
    text: str
    status: int


def prepare(data: Path, bootstrap: str, folder: Path) -> Shell:
    """Topics with records, and groups; the lines are typed in `folder`."""
    shell = Shell(data, bootstrap, folder)
    start_ms = 1_795_168_800_000  # 2026-11-20T10:00:00Z
    records = [
        {
            "key": f"customer-{number % 10}",
            "value": json.dumps({"order": number, "customer": number % 10}),
            "timestamp_ms": start_ms + number * 10_000,
        }
        for number in range(300)
    ]
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for line in (
        "kctl topics create orders --replica-assignment 0:1,1:2,2:0,0:2 --set retention.ms=-1",
        "kctl topics create replay --replica-assignment 0:1,1:2,2:0,0:2 --set retention.ms=-1",
        "head -n 100 records.jsonl | kctl produce orders --input jsonl --quiet",
        "sed -n 101,200p records.jsonl | kctl produce orders --input jsonl --quiet",
        "tail -n 100 records.jsonl | kctl produce orders --input jsonl --quiet",
        "kctl groups reset-offsets billing --topic orders --to-earliest --yes --no-backup",
        "kctl groups reset-offsets audit --topic orders --to-latest --yes --no-backup",
    ):
        ran = shell.type(Step(line))
        if ran.status:
            raise RuntimeError(f"{line}: {ran.text}")
    return shell


class Shell:
    """Runs lines in bash, with a terminal of their own."""

    def __init__(self, data: Path, bootstrap: str, folder: Path) -> None:
        self._data = data
        self._folder = folder
        programs = write_program(folder / "bin")
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KCTL_BOOTSTRAP_SERVER": bootstrap,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TERM": "xterm",
            "COLUMNS": str(COLUMNS),
            "NO_COLOR": "1",
        }

    def tell(self, story: Story) -> list[Typed]:
        """Run all lines of a story."""
        if story.prepared:
            line = story.prepared.format(data=self._data)
            subprocess.run(
                ["bash", "-c", line], cwd=self._folder, env=self._environment, check=True, timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
        return [self.type(step) for step in story.steps]

    def type(self, step: Step) -> Typed:
        """Run one line; the text is what stays on the screen, with the folders of this run replaced."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", f"set -o pipefail; {step.line}"],
            cwd=self._folder, env=self._environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        output = b""
        with contextlib.suppress(OSError):  # EIO when the line has ended
            while piece := os.read(master, 65536):
                output += piece
        os.close(master)
        status = process.wait(TIMEOUT_S)
        text = _CONTROL_SEQUENCE.sub("", output.decode()).replace("\r\n", "\n")
        text = _REDRAWN.sub("", text).replace(str(self._folder), "~").replace(str(self._data), "/var/lib/kctl")
        return Typed(step, "\n".join(line.rstrip() for line in text.splitlines()), status)


def section(story: Story, typed: list[Typed]) -> str:
    """Return the story as Markdown."""
    blocks = []
    for step, text, status in typed:
        blocks.append(f"$ {step.line}\n{text}\n" if text else f"$ {step.line}\n")
        if status:
            blocks.append(f"$ echo $?\n{status}\n")
    return f"```console\n{''.join(blocks)}```\n"


def markers(story: Story) -> tuple[str, str]:
    """Return the lines around the text of a story."""
    return f"<!-- {story.title}: written by docs/capture_stories.py -->\n", f"<!-- end of {story.title} -->\n"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="kctl-stories-") as scratch, contextlib.ExitStack() as stack:
        data, folder = Path(scratch) / "cluster", Path(scratch) / "home"
        folder.mkdir()
        shell = prepare(data, stack.enter_context(kctl_cluster(data, PROPERTIES)), folder)
        for story in STORIES:
            typed = shell.tell(story)
            for line in typed:
                if line.status != line.step.status:
                    raise RuntimeError(f"{line.step.line} ended with {line.status}: {line.text}")
            start, end = markers(story)
            before, _, rest = page.partition(start)
            page = f"{before}{start}\n{section(story, typed)}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
