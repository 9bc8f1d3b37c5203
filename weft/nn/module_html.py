"""How a notebook shows a module: a tree whose parts fold, with the number of parameters of each."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .module import Module

OPEN_LEVELS = 1  # that are unfolded at first
_STYLE = "font-family:monospace;line-height:1.45;margin-left:1.2em"


def module_html(module: Module) -> str:
    """An HTML fragment without scripts and without styles for the rest of the page."""
    return f'<div style="{_STYLE};margin-left:0">{_tree("", module, 0)}</div>'


def _tree(name: str, module: Any, level: int) -> str:
    children = list(module.named_children())
    title = _title(name, module)
    if not children:
        return f"<div>{title}</div>"
    inner = "".join(_tree(child, part, level + 1) for child, part in children)
    return (
        f"<details{' open' if level < OPEN_LEVELS else ''}><summary>{title}</summary>"
        f'<div style="{_STYLE}">{inner}</div></details>'
    )


def _title(name: str, module: Any) -> str:
    parameters = list(module.parameters())
    count = sum(p.size for p in parameters)
    frozen = sum(p.size for p in parameters if not p.requires_grad)
    label = f"({html.escape(name)}): " if name else ""
    settings = html.escape(module.extra_repr())
    shown = f"<b>{html.escape(type(module).__name__)}</b>({settings})"
    if not count:
        return f"{label}{shown}"
    kept = f", {frozen:,} frozen" if frozen else ""
    return f'{label}{shown} <span style="opacity:0.6">{count:,} parameters{kept}</span>'
