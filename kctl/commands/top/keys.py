"""Keys of a terminal, from the bytes that it sends.  Pure."""

from __future__ import annotations

from enum import StrEnum


class Key(StrEnum):
    """Keys without a character of their own."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"
    INTERRUPT = "ctrl-c"


_SEQUENCES = {
    b"[A": Key.UP,
    b"OA": Key.UP,
    b"[B": Key.DOWN,
    b"OB": Key.DOWN,
    b"[5~": Key.PAGE_UP,
    b"[6~": Key.PAGE_DOWN,
    b"[H": Key.HOME,
    b"OH": Key.HOME,
    b"[1~": Key.HOME,
    b"[F": Key.END,
    b"OF": Key.END,
    b"[4~": Key.END,
}
_CONTROLS = {"\r": Key.ENTER, "\n": Key.ENTER, "\x7f": Key.BACKSPACE, "\x08": Key.BACKSPACE, "\x03": Key.INTERRUPT}
_ESC = 0x1B


def keys_of(received: bytes) -> list[str]:
    """The keys in the bytes of one read: a character, or the name of a Key; unknown sequences are omitted.

    Terminals send the sequence of a key in one piece, so that an escape at the end is the key of that name.
    """
    found: list[str] = []
    at = 0
    while at < len(received):
        if received[at] == _ESC:
            end = _end_of_sequence(received, at + 1)
            sequence = received[at + 1 : end]
            if not sequence:
                found.append(Key.ESCAPE)
            elif sequence in _SEQUENCES:
                found.append(_SEQUENCES[sequence])
            at = end
            continue
        end = received.find(_ESC, at)
        end = len(received) if end < 0 else end
        for character in received[at:end].decode("utf-8", "ignore"):
            if character in _CONTROLS:
                found.append(_CONTROLS[character])
            elif character.isprintable():
                found.append(character)
        at = end
    return found


def _end_of_sequence(received: bytes, at: int) -> int:
    """The index after the sequence that begins after an escape; `at` if there is none."""
    if at >= len(received) or received[at] not in b"[O":
        return at
    end = at + 1
    if received[at] == ord("O"):
        return min(end + 1, len(received))
    while end < len(received):
        if 0x40 <= received[end] <= 0x7E:
            return end + 1
        end += 1
    return end
