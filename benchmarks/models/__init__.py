"""Training throughput of models, beside other frameworks.

`python -m benchmarks.models --peers FOLDER` starts one process per framework and mode, checks that all compute the same
first losses from the same weights, and lets them run in turns. `configurations` says what is trained, `runners` by whom,
`worker_*` how each framework does it, `table` shows the result, `kernel_times` where Weft's own time goes.
"""
