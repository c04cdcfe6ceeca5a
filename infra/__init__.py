"""Builds the package and the template, and deploys the stack: `python -m infra --help`."""
