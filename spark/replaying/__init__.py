"""Sends archived messages back through the service, each once in one run; see `sending`."""
