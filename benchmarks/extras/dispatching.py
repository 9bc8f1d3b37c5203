"""Eager dispatch and import: the figures of `benchmarks.dispatch`, beside torch."""

from __future__ import annotations

import statistics

from benchmarks import dispatch

from .context import Context, Row

TITLE = "Eager ops on 16 numbers, and the import"


def measure(context: Context, rounds: int = 3) -> list[Row]:
    """Medians over rounds in which the two take turns."""
    figures: dict[str, list[dict[str, float]]] = {"weft": [], "torch": []}
    for _ in range(rounds):
        for library in figures:
            found = (
                dispatch.run_child(context.interpreters[library], library) if library in context.interpreters else None
            )
            if found is not None:
                figures[library].append(found)
    rows = []
    for name in figures["weft"][0]:
        unit = "s" if name == "import" else "µs"
        middle = {
            library: statistics.median(f[name] for f in found)
            for library, found in figures.items()
            if found and name in found[0]
        }
        cells = {library: f"{value:.3g} {unit}" for library, value in middle.items()}
        if "torch" in middle:
            cells["ratio"] = f"{middle['weft'] / middle['torch']:.2f}"
        rows.append(Row(name, cells))
    return rows
