"""From rows to rows: no input, no output, no session."""
