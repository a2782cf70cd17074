"""`kctl __complete SHELL ...`, which the completion scripts call: prints what may stand at the cursor.

    kctl __complete bash REPLACED LINE    the end of the word that bash replaces, and the line up to the cursor
    kctl __complete zsh|fish WORD...      the words after `kctl`, the last one up to the cursor

The first line says what follows: `words`, with one on each further line, for zsh and fish with a tab and a text about
it; `unfinished`, the same, but what follows belongs to the same word; or `files` or `directories`, which the shell
itself completes.  Neither typer nor the client is imported if the description of the command is stored.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from kctl.commands.completion.words import Word, divide, expected_at_cursor, in_bash
from kctl.commands.frame.help.help_pages import described
from kctl.commands.frame.options.vocabulary import Vocabulary, parse_vocabulary
from kctl.errors import KctlError
from kctl.limits import Subject, bound

COMPLETIONS_MAX = bound(
    Subject.NAMED_FILES,
    "words that a shell gets for one completion",
    10_000,
    "words",
    on_excess="the first ones are completed",
)
LINE_CHARACTERS_MAX = 1 << 16
_NAME = re.compile(r"[a-z][a-z-]*(?: [a-z][a-z-]*)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def complete(arguments: Sequence[str]) -> str:
    """Return what the script of a shell reads; empty for a line that no script sends, and after an error."""
    try:
        return _complete(arguments)
    except (KctlError, OSError):  # An unusable file of profiles, for example: the next command will say so.
        return ""


def _complete(arguments: Sequence[str]) -> str:
    shell, *words = arguments or [""]
    if shell == "bash" and len(words) == 2 and len(words[1]) <= LINE_CHARACTERS_MAX:
        replaced, line = words
        divided = divide(line)
        while len(divided) > 1 and _ASSIGNMENT.match(divided[0].text):
            del divided[0]
        return _answer(shell, divided[1:], replaced) if len(divided) > 1 else ""
    if shell in {"zsh", "fish"} and words:
        *before, last = words
        typed = divide(last)[-1] if shell == "fish" else Word(last, last)
        return _answer(shell, [*(Word(word, word) for word in before), typed], "")
    return ""


def _answer(shell: str, words: Sequence[Word], replaced: str) -> str:
    from kctl.commands.completion.names import candidates  # noqa: PLC0415 - not for paths of files

    expected = expected_at_cursor([word.text for word in words], _vocabulary)
    if expected.values.kind in {"files", "directories"}:
        return f"{expected.values.kind}\n"
    found = [(expected.front + word, text) for word, text in candidates(expected)[:COMPLETIONS_MAX]]
    is_unfinished = bool(found) and all(word.endswith("=") for word, _ in found)
    if shell == "bash":
        lines = in_bash([word for word, _ in found], words[-1], replaced)
    else:
        lines = [f"{word}\t{text}" if text else word for word, text in found]
    return "\n".join(["unfinished" if is_unfinished else "words", *lines, ""])


@functools.cache
def _vocabulary(name: str) -> Vocabulary | None:
    if name and _NAME.fullmatch(name) is None:
        return None
    known = described(name)
    return None if known is None else parse_vocabulary(known.words)
