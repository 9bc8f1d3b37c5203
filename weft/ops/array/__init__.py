"""Ops and functions of arrays: creation, elementwise mathematics, reductions, shapes, sorting, linear algebra."""
