"""What runs inside an allocation: head, node agent, redirection, launching, gathering, the record's writer.

Imported by jobs only, so it stays light: no click, no pydantic, no DuckDB.
"""
