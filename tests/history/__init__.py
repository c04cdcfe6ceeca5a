"""What callers of the service sent and received, and the judgement on it: for the simulation and for real
concurrency."""
