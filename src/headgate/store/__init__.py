"""The state of the catalog and the only swap: memory, SQLite, PostgreSQL behind one contract."""
