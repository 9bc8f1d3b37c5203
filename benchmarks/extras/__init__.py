"""What else a framework costs, beside its throughput: `python -m benchmarks.extras --peers FOLDER`.

One module per question; each has `measure(context)` that returns rows of (what, figures by column, note), and a `TITLE`.
`context` knows the interpreters and the models to use.
"""
