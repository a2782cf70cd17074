"""The outcome of one item: error name and message, for any broker."""

from __future__ import annotations

import pytest

from kctl.client.outcome import Outcome, outcome_of, raise_if
from kctl.errors import ApiError, ErrorCode


def test_success_has_no_text_even_if_the_broker_sent_one() -> None:
    assert outcome_of("orders", 0, "fine") == Outcome("orders")


def test_the_brokers_error_message_is_preferred() -> None:
    assert outcome_of("orders", 36, "Topic 'orders' already exists.").message == "Topic 'orders' already exists."
    assert outcome_of("orders", 36).message == ErrorCode.TOPIC_ALREADY_EXISTS.description


def test_code_of_a_newer_broker_keeps_its_number() -> None:
    outcome = outcome_of("orders", 9_999, "quota of the future")
    assert outcome.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert outcome.message == "unknown error code 9999: quota of the future"


def test_only_the_given_error_code_raises() -> None:
    raise_if(0, ErrorCode.NOT_CONTROLLER)
    raise_if(36, ErrorCode.NOT_CONTROLLER)
    with pytest.raises(ApiError) as caught:
        raise_if(41, ErrorCode.NOT_CONTROLLER)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
