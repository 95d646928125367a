-- Files whose bytes are kept until they are known to be durable at their location. Numbered in order of arrival. The
-- bytes are short-lived and mostly compressed already: they are stored as they come.
CREATE TABLE journal (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    location TEXT COLLATE "C" NOT NULL UNIQUE,
    created_at_ms BIGINT NOT NULL,
    data BYTEA NOT NULL
);

ALTER TABLE journal ALTER COLUMN data SET STORAGE EXTERNAL;

-- No reference to entries: it would be looked up and locked for each row, and a drop of the entry names them.
CREATE TABLE footprints (
    entry_id TEXT COLLATE "C" NOT NULL,
    snapshot_id BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (entry_id, snapshot_id)
);

-- Requests acknowledged before they are carried out, numbered in order of arrival.
CREATE TABLE jobs (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    role TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    due_at_ms BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    owner TEXT,
    held_until_ms BIGINT NOT NULL DEFAULT 0,
    body BYTEA NOT NULL,
    UNIQUE (principal, id)
);

-- Files that nothing refers to, and when they may be deleted.
CREATE TABLE doomed (
    location TEXT COLLATE "C" PRIMARY KEY,
    entry_id TEXT NOT NULL,
    due_at_ms BIGINT NOT NULL
);

CREATE INDEX doomed_due ON doomed (due_at_ms, location);
