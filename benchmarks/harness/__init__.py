"""What all comparisons of whole models share: workers in separate processes, taking turns, on a machine whose load is recorded.

`protocol` is the worker's side, `process` and `turns` the comparing side, `machine` says how busy the machine was, `peers`
finds the other frameworks' interpreters, `report` makes tables and charts of the results.
"""
