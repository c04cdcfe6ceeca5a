"""Properties of the pure parts: for any input, not only for the examples that we thought of."""
