-- Files whose bytes are kept until they are known to be durable at their location. Numbered in order of arrival.
-- The bytes are last: a look at the other columns does not read their overflow pages.
CREATE TABLE journal (
    number INTEGER PRIMARY KEY,
    location TEXT NOT NULL UNIQUE,
    created_at_ms INTEGER NOT NULL,
    data BLOB NOT NULL
);

-- Rows in order of arrival, as in entry_log: snapshot ids are random, and clustered by them a group of 64 wrote twice
-- as many pages. No reference to entries: it would be looked up for each row, and a drop of the entry names them.
CREATE TABLE footprints (
    entry_id TEXT NOT NULL,
    snapshot_id INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (entry_id, snapshot_id)
);

-- Requests acknowledged before they are carried out, numbered in order of arrival. Their bodies are kept aside: who
-- looks for work reads small rows, and holding a job does not rewrite its body.
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    principal TEXT NOT NULL,
    role TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    due_at_ms INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    owner TEXT,
    held_until_ms INTEGER NOT NULL DEFAULT 0,
    UNIQUE (principal, id)
);

CREATE TABLE job_bodies (
    number INTEGER PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
    body BLOB NOT NULL
);

-- Files that nothing refers to, and when they may be deleted.
CREATE TABLE doomed (
    location TEXT PRIMARY KEY NOT NULL,
    entry_id TEXT NOT NULL,
    due_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX doomed_due ON doomed (due_at_ms, location);
