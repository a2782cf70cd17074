"""The levels of the broker's loggers under Kafka's names, to be looked at and set while it runs.  KIP-412.

Kafka's Log4jController.  What is set here lasts until the broker stops.
"""

from __future__ import annotations

import logging

from kctl.errors import ApiError, ErrorCode

ROOT = "root"
_PACKAGE = "kctl"
_TRACE = 5
LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """The root's level and, of every logger of kctl, the one in force."""
    names = [_PACKAGE, *(name for name in logging.root.manager.loggerDict if name.startswith(f"{_PACKAGE}."))]
    levels = {ROOT: _name_of(logging.root.level)}
    for name in sorted(names):
        levels[name] = _name_of(logging.getLogger(name).getEffectiveLevel())
    return levels


def check_logger(name: str, level: str | None) -> None:
    """Raises ApiError for a level (None: back to what is inherited) that this logger cannot take."""
    if name not in logger_levels():
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The root logger cannot be without a level")
    elif level not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Log level {level} is not one of {', '.join(LEVELS)}, for logger {name}"
        )


def set_logger(name: str, level: str | None) -> None:
    """Sets a level that `check_logger` let through."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name_of(level: int) -> str:
    """The name of the highest of Kafka's levels that is not above this one."""
    return next((name for name, number in reversed(LEVELS.items()) if number <= level), "TRACE")
