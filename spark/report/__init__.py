"""The report: one HTML page with its charts in it, which needs nothing else to be read."""
