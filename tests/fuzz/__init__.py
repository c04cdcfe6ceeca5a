"""Requests made up from the service's own OpenAPI document, and some that no document would think of."""
