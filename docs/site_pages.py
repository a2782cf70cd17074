"""Hooks of MkDocs: the pages of the site that are not files in docs, and links between pages and the repository.

Pages outside of docs (CONTRIBUTING.md and others) are on the site under the names in `PAGES_ELSEWHERE`, and the
reference of the commands has a page for each noun.  A link is written as it works in the repository; one to a file that
is not a page becomes plain text.  A link to a file that does not exist stays, so that the build reports it.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from kctl.commands.frame.help.documentation import cli_reference
from kctl.commands.frame.root import all_commands

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "build" / "pictures"
"""Where `./dev docs` puts the pictures of programs; docs/terminal_pictures.py makes them."""
PAGES_ELSEWHERE = {
    "README.md": "readme.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/flights/README.md": "flights.md",
    "packaging/README.md": "packaging.md",
    "packaging/grafana/README.md": "grafana.md",
}
"""Path in the repository -> path on the site."""
COMMANDS = "reference/cli.md"
COMMAND_PAGES = "reference/commands"
NO_PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"(?:[-*]|\d\.) +(?=\S)")
_LINK = re.compile(r"(?<!`)(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in docs, and the pictures; the menu gets the page of each noun."""
    for path, uri in PAGES_ELSEWHERE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    if (stored := files.get_file_from_path(COMMANDS)) is not None:
        files.remove(stored)
    pages = command_pages()
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    for section in config.nav or ():
        if "Reference" in section:
            section["Reference"] = [
                {"Commands": list(pages)} if COMMANDS in entry else entry for entry in section["Reference"]
            ]
    for name in picture_names():
        made = PICTURES / name
        content = made.read_text(encoding="utf-8") if made.exists() else NO_PICTURE
        files.append(File.generated(config, f"pictures/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page, with links to other pages as they are on the site."""
    uri = page.file.src_uri
    source = next((path for path, name in PAGES_ELSEWHERE.items() if name == uri), f"docs/{uri}")
    return with_indented_items(with_site_links(markdown, source=source, uri=uri))


def command_pages() -> dict[str, str]:
    """Return the reference of the commands, divided: what holds for all of them, and a page for each noun."""
    first, *nouns = re.split(r"(?m)^(?=## kctl )", cli_reference(all_commands()))
    pages: dict[str, str] = {}
    for section in nouns:
        title, _, text = section.partition("\n")
        noun = title.removeprefix("## kctl ")
        pages[f"{COMMAND_PAGES}/{noun}.md"] = f"# kctl {noun}\n" + re.sub(r"(?m)^##(#+ kctl )", r"#\1", text)
    return {COMMANDS: first} | pages


def picture_names() -> list[str]:
    """Return the pictures that pages show and that are not files in docs."""
    names = set()
    for path in (ROOT / "docs").rglob("*.md"):
        names |= set(re.findall(r"\]\((?:\.\./)*pictures/([\w-]+\.svg)\)", path.read_text(encoding="utf-8")))
    return sorted(name for name in names if not (ROOT / "docs" / "pictures" / name).exists())


def with_site_links(markdown: str, *, source: str, uri: str) -> str:
    """`markdown` of the file `source` in the repository, with its links as seen from the page `uri` of the site."""
    lines = []
    is_code = False
    for line in markdown.splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        lines.append(line if is_code else _LINK.sub(lambda link: _site_link(link, source, uri), line))
    return "\n".join(lines)


def with_indented_items(markdown: str) -> str:
    """Indent what belongs to an item of a list by four columns, as Python-Markdown requires.

    In the repository it is indented by the width of the marker, two or three columns, as everywhere else.  An empty
    line is required as well before a list, and before an item that follows a paragraph of another one.
    """
    lines: list[str] = []
    width = 0
    is_code = has_paragraphs = False
    for line in markdown.splitlines():
        if marker := None if is_code else _ITEM.match(line):
            if lines and lines[-1] and (not width or has_paragraphs):
                lines.append("")
            width = len(marker[0])
        elif line and len(line) - len(line.lstrip()) < width:
            is_next_paragraph = bool(lines) and not lines[-1]
            if is_next_paragraph or line.startswith(("#", "|", "`")):
                width, has_paragraphs = 0, False
        if not width and _FENCE.match(line):
            is_code = not is_code
        is_continued = width and not marker and line.startswith(" " * width)
        has_paragraphs |= bool(is_continued and lines and not lines[-1])
        lines.append(" " * (4 - width) + line if is_continued else line)
    return "\n".join(lines)


def _site_link(link: re.Match[str], source: str, uri: str) -> str:
    mark, text, target = link.groups()
    path, hash_sign, anchor = target.partition("#")
    if ":" in target or target.startswith("/"):
        return link[0]
    if uri == COMMANDS or uri.startswith(COMMAND_PAGES):
        path = path or posixpath.basename(COMMANDS)
        source = f"docs/{COMMANDS}"
    if not path:
        return link[0]
    in_repository = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    page = PAGES_ELSEWHERE.get(in_repository, in_repository.removeprefix("docs/"))
    is_page = in_repository in PAGES_ELSEWHERE or in_repository.startswith("docs/")
    if (ROOT / in_repository).is_dir():
        page, is_page = f"{page}/index.md", (ROOT / in_repository / "index.md").exists()
    if page == COMMANDS and anchor.startswith("kctl-"):
        nouns = [noun for noun in sorted(all_commands(), key=len, reverse=True) if _is_of(anchor, noun)]
        page = f"{COMMAND_PAGES}/{nouns[0]}.md" if nouns else page
    if not is_page:
        return text if os.path.lexists(ROOT / in_repository) else link[0]
    start = str(PurePosixPath(uri).parent)
    return f"{mark}[{text}]({posixpath.relpath(page, start)}{hash_sign}{anchor})"


def _is_of(anchor: str, noun: str) -> bool:
    return anchor == f"kctl-{noun}" or anchor.startswith(f"kctl-{noun}-")
