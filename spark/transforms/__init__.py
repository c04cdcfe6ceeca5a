"""Transforms rows to rows, without input, output or session."""
