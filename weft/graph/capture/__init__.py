"""Capturing eager functions: tracing, control flow on tensors, gradients, `wf.function`."""
