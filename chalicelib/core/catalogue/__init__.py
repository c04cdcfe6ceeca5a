"""Topics and groups: their settings, and the look-ups that an instance keeps for a few seconds."""
