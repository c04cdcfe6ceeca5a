"""The contract of the storage port, run on every store that we have."""
