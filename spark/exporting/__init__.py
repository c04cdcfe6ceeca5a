"""Writes a table, or what has changed in it, to files in the layout that AWS documents for exports."""
