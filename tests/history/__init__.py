"""What callers of the service did and heard, and the judgement on it: for the simulation and for real concurrency."""
