"""What all comparisons of whole models share: workers in processes of their own, taking turns, on a machine that is watched.

`protocol` is the worker's side, `process` and `turns` the comparing side, `machine` says how busy the machine was, `peers`
finds the other frameworks' interpreters, `report` makes tables and pictures of the results.
"""
