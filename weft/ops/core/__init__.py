"""How an op is defined and called: the record, dispatch, shape rules, in-place writes."""
