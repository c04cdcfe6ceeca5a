"""Records what callers of the service sent and received, and judges it: for the simulation and for real
concurrency."""
