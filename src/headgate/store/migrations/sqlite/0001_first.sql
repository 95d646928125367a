-- Paths join the levels of a namespace by U+001F; all text compares by code point (SQLite's BINARY).
CREATE TABLE namespaces (
    path TEXT PRIMARY KEY,
    parent TEXT REFERENCES namespaces (path),
    name TEXT NOT NULL,
    properties TEXT NOT NULL,
    version INTEGER NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX namespaces_children ON namespaces (parent, name);

-- 'namespace-version': what the next namespace starts at. Above every dropped one's, so that a version read from
-- a dropped namespace never fits its successor of the same name.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO counters VALUES ('namespace-version', 1);

-- The envelope is last: a scan of headers does not read its overflow pages. `is_stale` says that the checkpoint is
-- behind the version. It could be computed, but then every swap would rewrite its index.
CREATE TABLE entries (
    id TEXT PRIMARY KEY NOT NULL,
    namespace TEXT NOT NULL REFERENCES namespaces (path),
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('table', 'view')),
    uuid TEXT NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    location TEXT NOT NULL,
    metadata_location TEXT NOT NULL,
    checkpoint_location TEXT,
    checkpoint_version INTEGER,
    next_snapshot_position INTEGER NOT NULL,
    next_history_position INTEGER NOT NULL,
    is_stale INTEGER NOT NULL,
    envelope BLOB NOT NULL
);

CREATE UNIQUE INDEX entries_name ON entries (namespace, name);

CREATE INDEX entries_location ON entries (location) WHERE kind = 'table';

CREATE INDEX entries_stale ON entries (id) WHERE kind = 'table' AND is_stale = 1;

-- Rows in order of arrival, so that an item lands on the last page. Clustered by its key it would split pages in
-- the middle of the tree, and a swap wrote twice as many of them.
CREATE TABLE entry_log (
    entry_id TEXT NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
    stream INTEGER NOT NULL,
    position INTEGER NOT NULL,
    key INTEGER NOT NULL,
    tag INTEGER,
    body BLOB NOT NULL,
    PRIMARY KEY (entry_id, stream, position)
);

CREATE INDEX entry_log_tag ON entry_log (entry_id, stream, tag) WHERE tag IS NOT NULL;

CREATE TABLE keys (
    key TEXT NOT NULL,
    principal TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    status INTEGER NOT NULL,
    body BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (principal, key)
) WITHOUT ROWID;

CREATE INDEX keys_age ON keys (created_at_ms);

-- AUTOINCREMENT: a sequence is not given out twice, even if old rows are ever removed.
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    entry_id TEXT,
    principal TEXT NOT NULL,
    key TEXT,
    at_ms INTEGER NOT NULL,
    payload BLOB NOT NULL
);

CREATE TABLE principals (
    client_id TEXT PRIMARY KEY NOT NULL,
    secret_hash TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE secrets (
    name TEXT PRIMARY KEY NOT NULL,
    value BLOB NOT NULL
) WITHOUT ROWID;
