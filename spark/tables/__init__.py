"""The tables that jobs write: Parquet files, and versions that name them.

A version is one small file, `_versions/<number>.json`, which names every file of every table. Readers read only the
files that the newest version names. A commit creates the file of the next number, which fails if there is one; so a
job's tables change at one instant, together, and a run that fails or dies changes nothing. No file is ever moved or
written twice.

Files lie at `<table>/<partition>/<name>.parquet`. The partition is `date=<UTC date>` or `export=<export's id>`; that
column stands in the path alone. Tables whose names begin with `_` are for the jobs alone.
"""
