"""The HTTP contract as data, one module a family: its operations, the schemas of what goes in and comes out, examples.

`protocols.http.openapi` makes the document from it.
"""
