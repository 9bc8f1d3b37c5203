"""The loop IR, its checks, and the kernels written in it."""
