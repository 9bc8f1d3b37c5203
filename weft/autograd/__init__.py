"""Define-by-run differentiation: the tape, the backward engine, and the functions built on them."""
