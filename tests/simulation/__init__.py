"""A deterministic simulation of the real service on the memory store, with faults, and a checker of its histories."""
