"""Kernels in loop IR: one file per family, each a function from a description to a `Kernel`.

`layout` turns shapes and strides into well-shaped loops, `elementwise` and `reduce` serve any arrays, `rows` holds
the fused kernels that work row by row (softmax, normalisation), `random` the counter-based generator, `small_matmul`
small matrix products, `sorting` the keys that elements are sorted by and `copy` copies between layouts.
"""
