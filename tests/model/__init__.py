"""Compares the service with a plain sequential model of its contract, step by step."""
