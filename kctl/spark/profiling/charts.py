"""Charts as SVG elements of an HTML page.  Pure.

Colours come from the classes of the page's style sheet, so that they follow its light and dark theme.  All texts are
escaped here, so callers pass them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as escape_html
from typing import NamedTuple

from kctl.quantities import compact
from kctl.terminal_text import escape as escape_controls

CHART_WIDTH = 720
ROW_HEIGHT = 20
LABEL_WIDTH = 210
COLUMNS_HEIGHT = 160
COLUMN_WIDTH_MAX = 40
COLUMN_LABEL_WIDTH = 80
LABEL_CHARACTERS_MAX = 32


class Bar(NamedTuple):
    """A bar, its label, and what is shown when the pointer is over it."""

    label: str
    value: float
    note: str


def text(value: object) -> str:
    """Any text for HTML, in elements and attributes: markup, control and direction characters have no effect."""
    return escape_html(escape_controls(str(value)))


def rows_chart(bars: Sequence[Bar], title: str) -> str:
    """Horizontal bars, one below the other, with their values."""
    highest = max((bar.value for bar in bars), default=0) or 1
    room = CHART_WIDTH - LABEL_WIDTH - 70
    parts = []
    for number, bar in enumerate(bars):
        y = number * ROW_HEIGHT
        width = max(bar.value / highest * room, 1 if bar.value else 0)
        parts.append(
            f"<g><title>{text(bar.note)}</title>"
            f"{_label(bar.label, y)}"
            f'<rect class="bar" x="{LABEL_WIDTH}" y="{y + 3}" width="{width:.1f}" height="{ROW_HEIGHT - 6}"/>'
            f'<text class="value" x="{LABEL_WIDTH + width + 6:.1f}" y="{y + 14}">{text(compact(bar.value))}</text></g>'
        )
    return _svg(parts, len(bars) * ROW_HEIGHT, title)


def columns_chart(bars: Sequence[Bar], title: str) -> str:
    """Vertical bars, side by side; as many labels as there is room for."""
    highest = max((bar.value for bar in bars), default=0) or 1
    step = CHART_WIDTH / max(len(bars), 1)
    width = min(max(step - 2, step * 0.7), COLUMN_WIDTH_MAX)
    every = max(1, -(-len(bars) * COLUMN_LABEL_WIDTH // CHART_WIDTH))
    base = COLUMNS_HEIGHT - 22
    parts = [
        f'<text class="label" x="0" y="11">{text(compact(highest))}</text>',
        f'<line class="axis" x1="0" y1="{base}" x2="{CHART_WIDTH}" y2="{base}"/>',
    ]
    for number, bar in enumerate(bars):
        x = number * step
        height = max(bar.value / highest * (base - 18), 1 if bar.value else 0)
        parts.append(
            f"<g><title>{text(bar.note)}</title>"
            f'<rect class="area" x="{x:.1f}" y="0" width="{step:.1f}" height="{base}"/>'
            f'<rect class="bar" x="{x:.1f}" y="{base - height:.1f}" width="{width:.1f}" height="{height:.1f}"/></g>'
        )
        if number % every == 0:
            parts.append(f'<text class="label" x="{x:.1f}" y="{COLUMNS_HEIGHT - 6}">{text(bar.label)}</text>')
    return _svg(parts, COLUMNS_HEIGHT, title)


class HeatRow(NamedTuple):
    """A label, and shares from 0 to 1; None where nothing is known."""

    label: str
    shares: Sequence[float | None]
    note: str


def heat_chart(rows: Sequence[HeatRow], title: str) -> str:
    """A cell for each share, the darker the higher; cells without a value are outlined."""
    parts = []
    for number, row in enumerate(rows):
        y = number * ROW_HEIGHT
        step = (CHART_WIDTH - LABEL_WIDTH) / max(len(row.shares), 1)
        parts.append(f"<g><title>{text(row.note)}</title>{_label(row.label, y)}</g>")
        for column, share in enumerate(row.shares):
            known = "none" if share is None else "cell"
            shown = "no values" if share is None else f"{share:.1%}"
            parts.append(
                f'<rect class="{known}" x="{LABEL_WIDTH + column * step:.1f}" y="{y + 2}" width="{step - 2:.1f}" '
                f'height="{ROW_HEIGHT - 4}" fill-opacity="{share or 0:.3f}">'
                f"<title>{text(f'{row.label}, slice {column}: {shown}')}</title></rect>"
            )
    return _svg(parts, len(rows) * ROW_HEIGHT, title)


def _svg(parts: Sequence[str], height: int, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {CHART_WIDTH} {height}" width="{CHART_WIDTH}" height="{height}" role="img" '
        f'aria-label="{text(title)}">{"".join(parts)}</svg>'
    )


def _label(label: str, y: int) -> str:
    """The label of a row at the left."""
    return f'<text class="label" x="{LABEL_WIDTH - 8}" y="{y + 14}" text-anchor="end">{text(_shortened(label))}</text>'


def _shortened(label: str) -> str:
    label = escape_controls(label)
    return label if len(label) <= LABEL_CHARACTERS_MAX else f"{label[: LABEL_CHARACTERS_MAX - 1]}…"
