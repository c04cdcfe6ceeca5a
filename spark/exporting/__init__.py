"""Writes a table, or its changes, to files in the layout that AWS documents for exports."""
