"""Run an exported model: `python -m benchmarks.inference.worker_ort CASE onnxruntime|openvino FILE`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.harness.protocol import serve, threads
from benchmarks.inference.configurations import CASES, PROMPT, images, some


class OnnxRuntime:
    """A session; arrays stay in its own memory from token to token."""

    def __init__(self, path: str) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads()
        options.inter_op_num_threads = 1
        self.note = f"onnxruntime {ort.__version__}"
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.value = ort.OrtValue.ortvalue_from_numpy
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.shapes = [i.shape for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]

    def __call__(self, values: list[Any]) -> list[Any]:
        return self.session.run_with_ort_values(self.outputs, dict(zip(self.inputs, values, strict=True)))

    def array(self, value: Any) -> np.ndarray:
        return value.numpy()


class OpenVino:
    """A compiled model; two requests take turns, so that one's outputs can be the other's inputs without a copy."""

    def __init__(self, path: str) -> None:
        import openvino as ov

        self.note = f"openvino {ov.__version__}"
        options = {"INFERENCE_NUM_THREADS": threads(), "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self.model = ov.Core().compile_model(path, "CPU", options)
        self.requests = [self.model.create_infer_request() for _ in range(2)]
        self.shapes = [tuple(i.shape) for i in self.model.inputs]
        self.value = np.asarray

    def __call__(self, values: list[Any]) -> list[Any]:
        self.requests.reverse()
        found = self.requests[0].infer(dict(enumerate(values)), share_inputs=True, share_outputs=True)
        return [found[i] for i in range(len(self.model.outputs))]

    def array(self, value: Any) -> np.ndarray:
        return np.asarray(value)


class Tokens:
    """GPT token by token; starts over when the block is full."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.caches = [run.value(np.zeros(shape, np.float32)) for shape in run.shapes[2:]]
        self.positions = [run.value(np.array([i])) for i in range(self.caches_length())]
        self.token = run.value(np.array([[7]]))
        self.at = 0

    def caches_length(self) -> int:
        return int(self.run.shapes[2][2])

    def feed(self, token: Any) -> Any:
        scores, *self.caches = self.run([token, self.positions[self.at], *self.caches])
        self.at = (self.at + 1) % len(self.positions)
        return scores

    def __call__(self) -> Any:
        return self.feed(self.token)

    def check(self) -> list[float]:
        self.at = 0
        for token in PROMPT:
            out = self.feed(self.run.value(np.array([[token]])))
        return some(self.run.array(out))


def main() -> None:
    name, mode, path = sys.argv[1:4]
    case = CASES[name]
    run: Any = OnnxRuntime(path) if mode == "onnxruntime" else OpenVino(path)
    if case.model == "gpt":
        tokens = Tokens(run)
        serve(tokens, run.note, tokens.check)
        return
    x = run.value(images(case))
    serve(lambda: run([x]), run.note, lambda: some(run.array(run([x])[0])))


if __name__ == "__main__":
    main()
