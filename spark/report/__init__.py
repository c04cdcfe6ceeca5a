"""The report: one HTML page with inline charts, which loads nothing else."""
