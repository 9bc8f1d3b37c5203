"""Results as text, as markdown tables and as a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .chart import bars, ratios
from .runners import Runner


def _distance(pings: list[int]) -> str:
    """A sentence about the pings between two processors, one before every turn, which show where the host ran them."""
    if not pings:
        return ""
    near = sorted(pings)[len(pings) // 20]
    far = sum(p > 2 * near for p in pings) / len(pings)
    return f" A cache line took {near} ns from one processor to the other, more than twice that before {far:.0%} of the turns."


@dataclass(frozen=True)
class Section:
    """One part of the results.

    Args:
        name: its key in the document.
        titles: of the configurations, in the order of the table.
        runners: by name.
        amount: how many items of which unit a step of a configuration handles; no unit: report milliseconds instead.
        claim: the chart's title, which says what the bars show.
    """

    name: str
    titles: Mapping[str, str]
    runners: Mapping[str, Runner]
    amount: Callable[[str], tuple[int, str]]
    claim: str

    def results(self, document: dict[str, Any]) -> dict[str, Any]:
        """Configurations that Weft ran, in order."""
        found = document["sections"].get(self.name, {})
        return {name: found[name] for name in self.titles if name in found and "weft" in found[name]["rows"]}

    def best_peer(self, rows: dict[str, Any], kept: bool) -> str | None:
        """The quickest of the peers' modes, by its time relative to Weft's in the same group."""
        names = [n for n in rows if self.runners[n].is_peer and self.runners[n].is_kept == kept]
        return min(names, key=lambda n: rows[n]["relative"], default=None)

    def speed(self, name: str, row: dict[str, Any]) -> str:
        """Items per second, or milliseconds."""
        items, unit = self.amount(name)
        if not unit:
            return f"{milliseconds(row['median'])} ms"
        rate = items / row["median"]
        return f"{rate:,.0f} {unit}/s" if rate >= 100 else f"{rate:.3g} {unit}/s"

    # As text ------------------------------------------------------------------------------------------------------------

    def lines(self, name: str, result: dict[str, Any]) -> str:
        """The rows of one configuration, the quickest first, for a terminal."""
        lines = []
        for runner, r in sorted(result["rows"].items(), key=lambda kv: kv[1]["relative"]):
            lines.append(
                f"  {runner:20s} {self.speed(name, r):>20s}  {r['median'] * 1e3:10.3f} ms "
                f"[{r['low'] * 1e3:.3f} … {r['high'] * 1e3:.3f}]  {r['relative']:6.2f}× Weft's time  {r['steps']:5d} steps  "
                f"first {r['first_seconds']:6.2f} s  {r['peak_bytes'] / 2**20:7.0f} MiB  "
                f"check {r['check'][0]:.5f} … {r['check'][-1]:.5f}"
            )
        return "\n".join(lines)

    def conditions(self, document: dict[str, Any]) -> str:
        """On what, with which versions and how undisturbed it was measured, in one paragraph."""
        results = self.results(document)
        versions = {" ".join(row["what"].split()[:2]) for result in results.values() for row in result["rows"].values()}
        watched = [facts for result in results.values() for facts in result["machine"]]
        m = document["machine"]
        parts = []
        if m:
            parts.append(f"{m['cpus']} processors ({m['processor']}), {m['memory_gib']} GiB, {m['date']}")
        parts.append(", ".join(sorted(versions)))
        text = "; ".join(parts) + "."
        if watched:
            foreign, steal = (sorted(f[key] for f in watched) for key in ("foreign", "steal"))
            text += (
                f" Other processes took {foreign[0]:.0%} to {foreign[-1]:.0%} of the processors meanwhile, other guests "
                f"{steal[0]:.0%} to {steal[-1]:.0%}."
            )
            text += _distance([p for f in watched for p in f.get("pings", [])])
        return text

    def markdown(self, document: dict[str, Any]) -> str:
        """Two tables: Weft beside the best peer, and every runner."""
        results = self.results(document)
        lines = [
            self.conditions(document),
            "",
            "| | Weft | best peer as shipped | ratio | best peer with kept memory | ratio | peak memory |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, result in results.items():
            rows = result["rows"]
            busy = " (busy machine)" if any(r["busy"] for r in rows.values()) else ""
            # the best of our modes, as of the peers'
            ours = min((n for n in rows if not self.runners[n].is_peer), key=lambda n: rows[n]["relative"])
            mode = "" if ours == "weft" else f" ({self.runners[ours].title.removeprefix('Weft, ')})"
            cells = [self.titles[name] + busy, self.speed(name, rows[ours]) + mode]
            memory = "–"
            for kept in (False, True):
                peer = self.best_peer(rows, kept)
                if peer is None:
                    cells += ["–", "–"]
                    continue
                row = rows[peer]
                title = self.runners[peer].title.removesuffix(", kept memory")
                ratio = row["relative"] / rows[ours]["relative"]
                cells += [f"{title}, {self.speed(name, row)}", f"**{ratio:.2f}×**"]
                if not kept:
                    memory = f"{rows[ours]['peak_bytes'] / row['peak_bytes']:.2f} of its"
            lines.append("| " + " | ".join([*cells, memory]) + " |")
        used = self.used(results)
        lines += ["", "Milliseconds of a step, median and quartiles:", ""]
        lines += ["| | " + " | ".join(self.runners[r].title for r in used) + " |", "|---" * (len(used) + 1) + "|"]
        for name, result in results.items():
            cells = [_spread(result["rows"].get(r)) for r in used]
            lines.append(f"| {self.titles[name]} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def used(self, results: dict[str, Any]) -> list[str]:
        """The runners that have a row."""
        return [r for r in self.runners if any(r in result["rows"] for result in results.values())]

    # As a chart ---------------------------------------------------------------------------------------------------------

    def chart(self, document: dict[str, Any], path: Path) -> None:
        """Write the ratios of the first table as bars (.svg)."""
        path.write_text(bars(ratios(self.markdown(document)), self.claim), encoding="utf-8")


def _spread(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    spread = "one step" if row["steps"] == 1 else f"{milliseconds(row['low'])}–{milliseconds(row['high'])}"
    return f"{milliseconds(row['median'])} ({spread})"


def milliseconds(seconds: float) -> str:
    """Three digits, or all before the point."""
    return f"{seconds * 1e3:.3g}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"
