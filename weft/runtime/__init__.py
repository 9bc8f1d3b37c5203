"""The runtime: threads, memory, compiled programs and facts about the machine.

* `threads`: the number of threads, the OpenMP library, the compute token, behaviour at a fork.
* `spreading`: placement of worker threads on processors.
* `forks`: locks that are held over a fork.
* `memory`: the caching allocator of large arrays.
* `program`: compiled programs and their instances.
* `interrupts`: stopping native loops, Ctrl-C included.
* `limits`: bounds on caches, and an LRU table.
* `device`, `epoch`, `garbage`: device names, the counter of module changes, pausing the garbage collector.
* `info`: what Weft found on this machine, as a dictionary and as text.
"""
