"""From a request to entries in logs."""
