"""The table of kctl beside Apache Kafka: medians, ranges, ratios and what limits a row."""

from __future__ import annotations

from benchmarks.beside.rows import ROWS
from benchmarks.beside.table import Sample, document, lines_of, markdown

SIDES = ["kctl", "Apache 3.9.1", "Apache 4.3.1"]
SAMPLES = [
    *(Sample("produce", "MB/s", "kctl", value, 0.95) for value in (400, 500, 450)),
    *(Sample("produce", "MB/s", "Apache 3.9.1", value, 0.5) for value in (150, 100, 200)),
    Sample("produce", "MB/s", "Apache 4.3.1", 900, 0.2),
    *(Sample("produce", "CPU s/GB", "kctl", value, 0.95) for value in (0.5, 0.5, 1)),
    *(Sample("produce", "CPU s/GB", "Apache 3.9.1", value, 0.5) for value in (2, 2, 2)),
    Sample("replicated", "p99 ms", "kctl", 0.0, 0),
    Sample("replicated", "p99 ms", "Apache 3.9.1", 1234.5, 0),
]


def test_table_has_medians_ranges_and_ratios_in_favour_of_the_first_side() -> None:
    text = markdown(lines_of(SAMPLES), SIDES, {"load before": 3.5, "runs": 3})
    assert text.splitlines() == [
        "| what | unit | kctl | Apache 3.9.1 | Apache 4.3.1 | kctl / Apache 3.9.1 | kctl / Apache 4.3.1 | limit |",
        "|---|---|---|---|---|---|---|---|",
        "| produce | MB/s | 450 (400 to 500) | 150 (100 to 200) | 900 | 3.00x | 0.50x | client (kctl) |",
        "| produce | CPU s/GB | 0.5 (0.5 to 1) | 2 (2 to 2) | - | 4.00x |  |  |",
        "| replicated | p99 ms | 0 | 1,234 | - |  |  |  |",
        "",
        "Medians with the range of all runs; a ratio above 1 is in favour of the first. load before: 3.5; runs: 3.",
    ]


def test_document_has_every_measurement() -> None:
    found = document(lines_of(SAMPLES), SIDES, {"runs": 3})
    assert found["conditions"] == {"runs": 3}
    rows = found["rows"]
    assert isinstance(rows, list)
    assert rows[0] == {
        "what": "produce",
        "unit": "MB/s",
        "runs": {"kctl": [400, 500, 450], "Apache 3.9.1": [150, 100, 200], "Apache 4.3.1": [900]},
        "medians": {"kctl": 450, "Apache 3.9.1": 150, "Apache 4.3.1": 900},
        "ratios": {"Apache 3.9.1": 3.0, "Apache 4.3.1": 0.5},
        "limited_by_client": ["kctl"],
    }
    assert rows[2]["ratios"] == {"Apache 3.9.1": None, "Apache 4.3.1": None}


def test_keys_of_rows_are_unique() -> None:
    assert len({row.key for row in ROWS}) == len({row.name for row in ROWS}) == len(ROWS)
