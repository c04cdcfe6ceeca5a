"""The data pipeline: reads DynamoDB exports of the table, for questions that a queue cannot answer cheaply.

It shares no code with `chalicelib`: `docs/table.md` describes the items that it reads.
"""
