"""Convolution: the op and its gradients, its transpose, and the NumPy reference."""
