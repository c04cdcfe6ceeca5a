"""Records the requests and answers of callers, and judges them: for the simulation and for real concurrency."""
