"""One contract suite over memory, SQLite and PostgreSQL, and what only one of them can get wrong."""
