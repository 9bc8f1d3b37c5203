"""Weft's only door to oneDNN, through its C API with ctypes. Importing this loads nothing."""
