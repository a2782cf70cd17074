"""Medians of several runs, as a line for people and a JSON object for comparison."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that was measured several times."""

    name: str
    unit: str
    samples: Sequence[float]
    goal: str = ""
    """The goal of the project as text; empty for none."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def __str__(self) -> str:
        spread = f" ({_short(min(self.samples))} to {_short(max(self.samples))})" if len(self.samples) > 1 else ""
        goal = f"  goal {self.goal}" if self.goal else ""
        return f"{self.name:34} {_short(self.median):>10} {self.unit}{spread}{goal}"


def report(question: str, figures: Iterable[Figure], **conditions: str | int) -> None:
    """A line per figure to stderr, and one JSON object to stdout."""
    figures = list(figures)
    for figure in figures:
        print(figure, file=sys.stderr)
    outcome = {
        "benchmark": question,
        "commit": commit(),
        "machine": machine(),
        "conditions": conditions,
        "results": [
            {
                "name": figure.name,
                "unit": figure.unit,
                "median": round(figure.median, 4),
                "runs": [round(sample, 4) for sample in figure.samples],
                "goal": figure.goal or None,
            }
            for figure in figures
        ],
    }
    print(json.dumps(outcome))


def machine() -> dict[str, str | int | None]:
    """What ran it."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def commit() -> str:
    """The commit of the source tree, with a plus when it was changed; "unknown" outside of one."""
    finished = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    return finished.stdout.strip() or "unknown"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
