"""The contract over HTTP, on Chalice."""
