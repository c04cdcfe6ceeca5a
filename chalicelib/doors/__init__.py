"""Ways to reach the service. Each owns one table from error codes to its own."""
