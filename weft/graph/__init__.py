"""The same ops, not run yet: graphs of nodes, and the capture of eager functions into them."""
