"""Check the words of code and pages: `python -m docs.words`; part of `./dev check`.  CONTRIBUTING.md has the list.

Only what a program can see with few false alarms is checked: names of loop variables and parameters, and phrases that
stand for a plain word.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = ("kctl", "docs", "packaging", "completions")
PAGES = ("*.md", "docs/**/*.md", "packaging/**/*.md", "examples/**/*.md", "benchmarks/*.md")
NOT_CHECKED = {"CONTRIBUTING.md", "docs/words.py"}
"""They name the words."""
EMPTY_NAMES = {"one", "each"}
PHRASES = {
    r"(lives|sits) in": "is in, is stored in",
    r"talks? to": "connects to, sends to",
    r"speaks? (the|Kafka|to)": "supports, sends",
    r"wants to": "has to, needs",
    r"(goes|go) away": "ends, is closed, is removed",
    r"gives up": "stops after N attempts, is not retried",
    r"hands? over": "passes, transfers",
    r"tak(es?|ing) care of": "name what is done",
    r"under the hood|behind the scenes": "name the part",
    r"out of the box": "by default",
    r"on the fly": "while it is read, at each request",
    r"from scratch": "from the beginning",
    r"(kicks?|chimes?) in": "applies, starts",
    r"happily|simply|obviously|of course|basically|actually": "leave it out",
    r"magically|automagically": "name the mechanism",
    r"(is|are) happy": "succeeds, is satisfied",
    r"boils? down to": "is",
    r"(first|second)-class citizen": "is supported",
    r"heavy lifting": "name the work",
    r"the world": "name it",
}
"""Pattern of a phrase -> what to write instead."""
_PHRASE = re.compile(
    "|".join(rf"(?P<p{number}>\b(?:{phrase})\b)" for number, phrase in enumerate(PHRASES)), re.IGNORECASE
)
_INLINE_CODE = re.compile(r"`[^`]*`")


def main() -> int:
    """Print each problem; returns the exit status: 1 if there is one."""
    problems = [*phrase_problems(), *loop_variable_problems()]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    return 1 if problems else 0


def phrase_problems() -> Iterator[str]:
    """Yield a line for each phrase in a page, comment or string."""
    texts = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    for path in sorted({*texts, *python_files()}):
        name = str(path.relative_to(ROOT))
        if name in NOT_CHECKED or path.parent.name.startswith("."):
            continue
        text = path.read_text(encoding="utf-8")
        for number, line in prose_of(text) if path.suffix == ".py" else markdown_lines(text):
            for phrase, instead in phrases_in(line):
                yield f"{name}:{number}: instead of '{phrase}': {instead}"


def phrases_in(line: str) -> Iterator[tuple[str, str]]:
    """Yield each phrase outside of inline code, and what to write instead."""
    for match in _PHRASE.finditer(_INLINE_CODE.sub("", line)):
        yield match[0], list(PHRASES.values())[int((match.lastgroup or "p0")[1:])]


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of comments and strings with their numbers."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield from enumerate(token.string.splitlines(), token.start[0])


def markdown_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside of code blocks with their numbers."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def loop_variable_problems() -> Iterator[str]:
    """Yield a line for each loop variable and parameter that is named after nothing."""
    for path in python_files():
        name = path.relative_to(ROOT)
        for line in empty_names(path.read_text(encoding="utf-8")):
            yield f"{name}:{line}: a variable is called one or each: name it after what it holds"


def empty_names(source: str) -> list[int]:
    """Return the lines with a loop, comprehension or parameter whose variable is named after nothing."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            names = {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
            if EMPTY_NAMES & names:
                lines.append(node.target.lineno)
        elif isinstance(node, ast.arg) and node.arg in EMPTY_NAMES:
            lines.append(node.lineno)
    return lines


def python_files() -> list[Path]:
    """Return the modules whose words are checked."""
    return sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py"))


if __name__ == "__main__":
    sys.exit(main())
