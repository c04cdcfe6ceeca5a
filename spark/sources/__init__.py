"""Where the rows come from: exports of the table, on this machine or in S3."""
