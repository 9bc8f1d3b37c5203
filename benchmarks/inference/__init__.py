"""Latency of models that are trained: `python -m benchmarks.inference --peers FOLDER`.

Weft's captured forward beside PyTorch (eager, compiled and frozen), ONNX Runtime and OpenVINO; the latter two read the
model that PyTorch exports. All start from the same weights and must give the same scores before they are timed.
"""
