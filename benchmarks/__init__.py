"""What Decant costs and how fast it is: `python -m benchmarks`. What the figures say is in README.md."""
