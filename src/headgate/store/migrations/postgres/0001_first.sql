-- Paths join the levels of a namespace by U+001F. All text that is compared has COLLATE "C": by code point, as in
-- Python and SQLite, whatever the locale of the database is.
CREATE TABLE namespaces (
    path TEXT COLLATE "C" PRIMARY KEY,
    parent TEXT COLLATE "C" REFERENCES namespaces (path),
    name TEXT COLLATE "C" NOT NULL,
    properties TEXT NOT NULL,
    version BIGINT NOT NULL
);

CREATE UNIQUE INDEX namespaces_children ON namespaces (parent, name);

-- 'namespace-version': what the next namespace starts at. Above every dropped one's, so that a version read from
-- a dropped namespace never fits its successor of the same name.
-- 'event-offset': what is added to a transaction's number to order its events. Raised when the rows were restored
-- into a cluster whose transaction numbers are behind theirs.
CREATE TABLE counters (
    name TEXT COLLATE "C" PRIMARY KEY,
    value BIGINT NOT NULL
);

INSERT INTO counters VALUES ('namespace-version', 1), ('event-offset', 0);

-- Half-empty pages: a swap rewrites the row in its own page and no index changes.
CREATE TABLE entries (
    id TEXT COLLATE "C" PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL REFERENCES namespaces (path),
    name TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('table', 'view')),
    uuid TEXT NOT NULL,
    version BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    location TEXT COLLATE "C" NOT NULL,
    metadata_location TEXT NOT NULL,
    checkpoint_location TEXT,
    checkpoint_version BIGINT,
    next_snapshot_position BIGINT NOT NULL,
    next_history_position BIGINT NOT NULL,
    envelope BYTEA NOT NULL
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX entries_name ON entries (namespace, name);

CREATE INDEX entries_location ON entries (location) WHERE kind = 'table';

CREATE TABLE entry_log (
    entry_id TEXT COLLATE "C" NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
    stream SMALLINT NOT NULL,
    position BIGINT NOT NULL,
    key BIGINT NOT NULL,
    tag BIGINT,
    body BYTEA NOT NULL,
    PRIMARY KEY (entry_id, stream, position)
);

CREATE INDEX entry_log_tag ON entry_log (entry_id, stream, tag) WHERE tag IS NOT NULL;

CREATE TABLE keys (
    key TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT NOT NULL,
    status INTEGER NOT NULL,
    body BYTEA NOT NULL,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (principal, key)
);

CREATE INDEX keys_age ON keys (created_at_ms);

-- The sequence holds the number of the transaction that wrote the row, then the row's number in it.
CREATE TABLE events (
    sequence BIGINT PRIMARY KEY,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    entry_id TEXT,
    principal TEXT NOT NULL,
    key TEXT,
    at_ms BIGINT NOT NULL,
    payload BYTEA NOT NULL
);

CREATE TABLE principals (
    client_id TEXT COLLATE "C" PRIMARY KEY,
    secret_hash TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE secrets (
    name TEXT COLLATE "C" PRIMARY KEY,
    value BYTEA NOT NULL
);
