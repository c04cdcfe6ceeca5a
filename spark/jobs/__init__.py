"""The jobs that operators run: `python -m spark.jobs.<job>`, or `spark-submit spark/jobs/<job>.py`."""
