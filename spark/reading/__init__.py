"""Reads exports of the table, on this machine or in S3."""
