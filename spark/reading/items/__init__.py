"""Lines of a data file become items, rows of `item_schemas.ITEMS`, in one of two ways.

`rows` parses one line: its typed JSON (`attributes`), its key (`keys`) and the struct of its kind (`structs`). It reads
every kind, and reports the error in a line. `columns` parses all segments or all payloads of a block at once, 3 to 6
times as fast: almost all lines are of these two kinds. It rejects a block with an unexpected line. Both must return the
same rows; tests/spark/test_rows_and_columns.py compares them."""
