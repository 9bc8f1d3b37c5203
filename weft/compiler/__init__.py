"""Compiler from graphs to native programs: passes, lowering, and the loop IR that kernels are written in.

`passes` rewrite a flow, `lowering` turns it into the steps of a program, `loop_ir` is the kernel language with the kernels
written in it. `weft.backends` turns loop IR into machine code; the IR itself knows no vector width and no pointer size.
"""
