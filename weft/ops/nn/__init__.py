"""Neural-network ops: activations, losses, normalisation, attention, convolution, pooling, recurrence."""
