"""From graph to native program: the loop IR and the kernels and passes built on it.

`loops` is the language kernels are written in, `kernels` builds the common ones in it. Nothing here knows a
machine: no vector width, no pointer size, no LLVM. `weft.backends` turns loop IR into code.
"""
