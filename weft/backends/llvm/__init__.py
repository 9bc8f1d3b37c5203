"""Native code through LLVM: the only folder that imports llvmlite, and it does so on the first kernel.

`target` describes a machine, `mathlib` writes exp, log, erf … as polynomials, `emit` turns loop IR into LLVM IR,
`jit` compiles, caches and loads it, and `eager` is what eager ops call on NumPy arrays.
"""
