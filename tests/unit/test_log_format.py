"""Format of the broker's log lines."""

from __future__ import annotations

import logging

from kctl.limits import LOG_MESSAGE_CHARACTERS_MAX
from kctl.log_format import EscapingFormatter


def test_a_long_message_is_cut() -> None:
    record = logging.LogRecord("kctl", logging.INFO, __file__, 1, "path=%s", ("x" * 100_000,), None)
    text = EscapingFormatter("%(levelname)s %(message)s").format(record)
    assert len(text) == LOG_MESSAGE_CHARACTERS_MAX
    assert text.endswith("...")
