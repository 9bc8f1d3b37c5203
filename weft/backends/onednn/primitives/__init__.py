"""oneDNN primitives: descriptors in, an immutable `Primitive` out. See `base` for the contract."""
