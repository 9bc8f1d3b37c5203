"""Running things: threads, memory, and what the machine offers.

* `threads`: the width Weft computes with, the OpenMP library, the compute token, what happens at a fork.
* `forks`: what a fork waits for.
* `memory`: the caching allocator behind large arrays.
* `info`: what Weft found on this machine, as a dictionary and as text.
"""
