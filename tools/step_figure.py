"""Draws one step of a distributed run over four workers, for docs/distributed.md; worker 3 is killed in its second shard."""

from __future__ import annotations

from weft import svg

LEFT, TOP, ROW, BAR, UNIT = 84.0, 56.0, 40.0, 26.0, 62.0
WORKERS = 4
# worker: (first unit, length, label, style, what the pointer shows)
SHARDS = {
    0: [(0, 1, "0", "blue-tint", "shard 0"), (1, 1, "1", "blue-tint", "shard 1")],
    1: [(0, 1, "2", "blue-tint", "shard 2"), (1, 1, "3", "blue-tint", "shard 3"),
        (2.15, 1, "7", "blue-tint", "shard 7 again: its claim was freed when worker 3 died, and the bits are the same")],
    2: [(0, 1.1, "4", "blue-tint", "shard 4"), (1.1, 1.1, "5", "blue-tint", "shard 5")],
    3: [(0, 1, "6", "blue-tint", "shard 6"), (1, 0.7, "7", "orange-tint", "shard 7, killed before it was ready")],
}  # fmt: skip
UPDATES = {0: "a", 1: "b", 2: "c"}
SUM, UPDATE = 3.3, 1.25


def step() -> str:
    """The picture as SVG."""
    x = [LEFT + UNIT * t for t in (0.0, SUM, SUM + UPDATE + 0.3, 6.4)]
    bottom = TOP + ROW * WORKERS
    parts = [
        svg.text((x[0] + x[1]) / 2, 22, "shards", "strong", "middle"),
        svg.text((x[0] + x[1]) / 2, 40, "gradients of 8 parts of the batch", "small muted", "middle"),
        svg.text((x[1] + x[2]) / 2, 22, "slices", "strong", "middle"),
        svg.text((x[1] + x[2]) / 2, 40, "sum, update", "small muted", "middle"),
        svg.text(x[2] + 12, 22, "version t + 1", "strong"),
        svg.text(x[2] + 12, 40, "one atomic word", "small muted"),
    ]
    for worker in range(WORKERS):
        y = TOP + ROW * worker
        parts.append(svg.text(LEFT - 12, y + 18, f"worker {worker}", anchor="end"))
        for first, length, label, style, title in SHARDS[worker]:
            at = LEFT + UNIT * first
            box = svg.rectangle(at, y, UNIT * length - 3, BAR, style, 3)
            parts.append(svg.titled([box, svg.text(at + UNIT * length / 2, y + 18, label, anchor="middle")], title))
        if worker in UPDATES:
            at = LEFT + UNIT * SUM + 4
            box = svg.rectangle(at, y, UNIT * UPDATE - 6, BAR, "plain", 3)
            name = UPDATES[worker]
            parts.append(
                svg.titled(
                    [box, svg.text(at + UNIT * UPDATE / 2, y + 18, f"slice {name}", anchor="middle")],
                    f"slice {name} of weights and optimiser state: adds the partial sums, updates, and writes the other copy",
                )
            )
        else:
            parts.append(svg.text(LEFT + UNIT * 1.75 + 4, y + 18, "killed", "small muted"))
    parts += [
        svg.line(x[1] - 2, TOP - 6, x[1] - 2, bottom, "rule control"),
        svg.line(x[2], TOP - 6, x[2], bottom, "tick"),
    ]
    parts.append(svg.text(LEFT, bottom + 16, "time →", "small muted"))
    return svg.document(
        x[3] + 20, bottom + 24, parts, "One step over four workers; one of them is killed, another computes its shard"
    )
