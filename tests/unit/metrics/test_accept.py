"""Which exposition format a client gets for its Accept header."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kctl.metrics.exposition import Format, preferences
from tests.rows import for_rows

PLAIN, OPEN = "text/plain", "application/openmetrics-text"
PROMETHEUS_2 = f"{OPEN};version=1.0.0,{OPEN};version=0.0.1;q=0.75,{PLAIN};version=0.0.4;q=0.5,*/*;q=0.1"
PROMETHEUS_3 = (
    f"{OPEN};version=1.0.0;escaping=allow-utf-8;q=0.5,{OPEN};version=0.0.1;q=0.4,"
    f"{PLAIN};version=1.0.0;escaping=allow-utf-8;q=0.3,{PLAIN};version=0.0.4;q=0.2,/;q=0.1"
)


@for_rows(
    "accept, expected",
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/html, */*;q=0.1", PLAIN),
        ("text/html", PLAIN),
        (PROMETHEUS_2, OPEN),
        (PROMETHEUS_3, OPEN),
        (f"{PLAIN};version=0.0.4;q=0.9,{OPEN};version=1.0.0;q=0.5", PLAIN),
        (f"{OPEN};version=1.0.0;q=0.5,{PLAIN};version=0.0.4;q=0.9", PLAIN),
        (f"{PLAIN};version=0.0.4;q=0.5,{OPEN};version=1.0.0;q=0.9", OPEN),
        (f"{PLAIN};q=0.5, {OPEN} ; Q=0.9", OPEN),
        (f"{OPEN};q=0", PLAIN),
        (f"{OPEN};q=0, */*", PLAIN),
        (f"{PLAIN};q=0, */*", OPEN),
        (f"{PLAIN};q=0, {OPEN};q=0.1", OPEN),
        ("application/*", OPEN),
        (f"application/*;q=0.2, {PLAIN};q=0.1", OPEN),
        ("Application/OpenMetrics-Text", OPEN),
        (f"{OPEN};version=0.0.1,{PLAIN};q=0.1", PLAIN),
        (f"{OPEN};version=none,{PLAIN};version=none;q=0.1", PLAIN),
        (f"{OPEN};q=much,{PLAIN};q=0.9", OPEN),
        (f"{OPEN};q=nan", OPEN),
    ],
)
def test_the_format_with_the_highest_quality_is_chosen(accept: str, expected: str) -> None:
    chosen = Format(accept)
    assert chosen.content_type.partition(";")[0] == expected
    assert chosen.is_openmetrics == (expected == OPEN)


def test_types_of_one_quality_stay_in_the_order_of_the_header() -> None:
    assert preferences(f"{PLAIN}, {OPEN};version=1.0.0") == [PLAIN, f"{OPEN};version=1.0.0"]
    assert preferences(f"{OPEN};version=1.0.0, {PLAIN}") == [f"{OPEN};version=1.0.0", PLAIN]


@given(st.lists(st.sampled_from([PLAIN, OPEN, "*/*", ";", ",", "q=", "q=0.3", "version=", "=", " ", "1.0.0", "\x00"])))
def test_every_header_gets_one_of_the_two_formats(words: list[str]) -> None:
    assert Format("".join(words)).content_type.startswith((PLAIN, OPEN))
