"""The data pipeline: reads DynamoDB exports of the table, and answers what a queue cannot answer cheaply.

It shares no code with `chalicelib`: what it reads is described in `docs/table.md`.
"""
