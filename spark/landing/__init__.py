"""The one pass over an export: its items become the table `_items`, its new messages rows of `messages`.

`landed` reads each data file once. It writes the items without their messages, and sets aside the packed messages of
entries that the table `messages` does not have (`_known`). `unpacked` then unpacks these, once the names of all topics
are known. Both are plain Python over Arrow; `tasks` runs them in processes of this machine, or on a cluster.
"""
