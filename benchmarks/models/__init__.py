"""Training throughput of models, beside other frameworks.

`python -m benchmarks.models --models mlp,gpt --frameworks weft,torch` starts one process per framework and model, lets
them run in turns (A B A B …) so that the noise of a shared machine hits all alike, and prints medians and ratios.
`configurations` says what is trained, `worker_*` how each framework does it, `__main__` compares.
"""
