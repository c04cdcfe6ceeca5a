"""Decant: a message queue without brokers."""

VERSION = "0.1.0"
