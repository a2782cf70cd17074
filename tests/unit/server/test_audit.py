"""The log of decisions."""

from __future__ import annotations

import logging

from kctl.output.log_folding import LOG_LINES_OF_EVENT_MAX
from kctl.security.acls import Operation, ResourceType
from kctl.security.authorization import Client, Decision, Reason, java_address
from kctl.server.security.authorization.access import DENIALS_KEPT_MAX, Denial, Denials, Question, log, log_denied
from tests.rows import for_rows
from tests.unit.log_lines import written_lines

RULE = Decision(is_allowed=False, reason=next(iter(Reason)))


def denied(*names: str) -> list[logging.LogRecord]:
    """The records about denials of these topics."""

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    records: list[logging.LogRecord] = []
    handler = Keeper()
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        for name in names:
            client = Client("User:bob", "1.2.3.4")
            log_denied(Question("EXTERNAL", client, Operation.WRITE, ResourceType.TOPIC, name, "produce"), RULE)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    return records


def test_a_line_has_principal_host_operation_and_resource() -> None:
    (line,) = written_lines(denied("a"))
    assert line.endswith(
        "denied listener=EXTERNAL principal=User:bob host=1.2.3.4 operation=Write resource=Topic:a request=produce "
        f"rule={RULE.rule}"
    )


def test_repeated_denials_are_counted() -> None:
    lines = written_lines(denied(*"aabaa"))
    assert [line.partition("resource=Topic:")[2][0] for line in lines] == ["a", "b", "a"]
    assert lines[2].endswith(" repeated=3")


def test_a_flood_of_different_denials_is_counted_in_one_number() -> None:
    lines = written_lines(denied(*(str(number) for number in range(10 * LOG_LINES_OF_EVENT_MAX))))
    assert len(lines) == LOG_LINES_OF_EVENT_MAX + 1
    assert lines[-1].endswith(f" similar={9 * LOG_LINES_OF_EVENT_MAX}")


def test_the_latest_denials_are_counted_for_metrics_and_no_more() -> None:
    denials = Denials()
    first = Denial("User:bob", Operation.READ, ResourceType.TOPIC, "first")
    denials.add(first)
    for number in range(DENIALS_KEPT_MAX - 1):
        denials.add(first._replace(name=str(number)))
    denials.add(first)
    assert (len(denials.counts()), denials.counts()[-1]) == (DENIALS_KEPT_MAX, (first, 2))
    denials.add(first._replace(name="one more"))
    kept = dict(denials.counts())
    assert (len(kept), kept[first], first._replace(name="0") in kept) == (DENIALS_KEPT_MAX, 2, False)


@for_rows(
    "peer, address",
    [
        ("/127.0.0.1", "127.0.0.1"),
        ("/::1", "0:0:0:0:0:0:0:1"),
        ("/fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("/::ffff:10.0.0.1", "10.0.0.1"),
        ("/2001:DB8::a", "2001:db8:0:0:0:0:0:a"),
        ("/somewhere", "somewhere"),
    ],
)
def test_addresses_are_those_that_java_prints(peer: str, address: str) -> None:
    assert java_address(peer) == address
