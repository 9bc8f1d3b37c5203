"""The common style of Weft's SVG pictures: graphs, profiles and benchmark charts.

Pictures have no background and follow the colour scheme of the page around them (light or dark). Hues are those of Okabe and
Ito, which colour-blind readers can tell apart. Style classes: `ink` and `muted` for text, `rule` for thin lines, `blue` and
`orange` for marks, `blue-tint`, `orange-tint` and `plain` for boxes.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

FONT_SIZE = 14  # in units of the picture, which is shown at one pixel per unit or smaller

_STYLE = """
:root { color-scheme: light dark }
text { font: 14px -apple-system, BlinkMacSystemFont, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.small { font-size: 12px } .strong { font-weight: 600 } .aside { font-weight: 400 }
.muted { fill: #59636e } .rule { stroke: #b6bec7; fill: none } .edge { stroke: #7d8590; fill: none; stroke-width: 1.2 }
.control { stroke-dasharray: 4 3 }
.blue { fill: #0072b2 } .orange { fill: #d55e00 } .gray { fill: #a5adb6 } .tick { stroke: #1f2328; stroke-width: 2 }
.plain { fill: #ffffff; stroke: #7d8590 } .blue-tint { fill: #d9ecf8; stroke: #0072b2 }
.orange-tint { fill: #fde5d4; stroke: #d55e00 } .arrow { fill: #7d8590 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .muted { fill: #9aa4af } .rule { stroke: #4a525c } .edge { stroke: #8b949e }
.blue { fill: #56b4e9 } .orange { fill: #e69f00 } .gray { fill: #6e7681 } .tick { stroke: #e6edf3 }
.plain { fill: #22272e } .blue-tint { fill: #12354c; stroke: #56b4e9 }
.orange-tint { fill: #4a2f12; stroke: #e69f00 } .arrow { fill: #8b949e }
}
"""


def text(x: float, y: float, content: str, style: str = "", anchor: str = "start", aside: str = "") -> str:
    """Text whose baseline is at `y`; `anchor` is start, middle or end. `aside` follows in small, muted letters."""
    styled = f' class="{style}"' if style else ""
    after = f'<tspan dx="6" class="small muted aside">{html.escape(aside)}</tspan>' if aside else ""
    anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{number(x)}" y="{number(y)}"{styled}{anchored}>{html.escape(content)}{after}</text>'


def rectangle(x: float, y: float, width: float, height: float, style: str, radius: float = 0) -> str:
    rounded = f' rx="{number(radius)}"' if radius else ""
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"{rounded} '
        f'class="{style}"/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, style: str = "rule") -> str:
    return f'<path d="M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}" class="{style}"/>'


def titled(parts: Iterable[str], title: str) -> str:
    """A group that shows `title` when the pointer is over it."""
    return f"<g><title>{html.escape(title)}</title>{''.join(parts)}</g>"


def text_width(content: str, size: float = FONT_SIZE) -> float:
    """An upper estimate of the width of `content`, because fonts differ between machines."""
    return 0.63 * size * len(content)


def document(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """The whole picture; `label` says to screen readers what it shows."""
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{html.escape(label)}">'
        f"<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
