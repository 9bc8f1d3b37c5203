"""Kernels in loop IR: one file per family, each a function from a description to a `Kernel`.

`layout` simplifies shapes and strides before loops are built. `elementwise`, `tiled`, `copy`, `transpose` and `reduce`
take arrays of any strides; `rows` and `norms` are fused row kernels (softmax, normalisation). `tiles` and `panels` are the
register tile and the packing that the matmuls (`blocked_matmul`, `deep_matmul`, `skinny_matmul`, `small_matmul`),
`attention` and `recurrent` share; `depthwise`, `pointwise_conv` and `winograd` are convolutions.
"""
