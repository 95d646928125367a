-- What a commit adds to the log, the keys, the events and the facts is put here first, at the end of one table without an
-- index: with its indexes, a commit of one client wrote 23 pages, most of them for one row each. Rows are moved into the
-- tables below many at a time. `kind` says what a row is (1 log item, 2 key, 3 event, 4 facts); the views say
-- what its columns are.
CREATE TABLE staged (
    number INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    t1 TEXT,
    t2 TEXT,
    t3 TEXT,
    t4 TEXT,
    t5 TEXT,
    t6 TEXT,
    n1 INTEGER,
    n2 INTEGER,
    n3 INTEGER,
    n4 INTEGER,
    body BLOB
);

-- The tables keep their rows and indexes under other names, and views of both parts take theirs. So a read cannot miss a
-- staged row, and a service of an older version, which knows of none, cannot write beside them.
ALTER TABLE entry_log RENAME TO indexed_log;

ALTER TABLE keys RENAME TO indexed_keys;

ALTER TABLE events RENAME TO indexed_events;

ALTER TABLE snapshot_facts RENAME TO indexed_facts;

CREATE VIEW staged_log AS
SELECT number, t1 AS entry_id, n1 AS stream, n2 AS position, n3 AS key, n4 AS tag, body
FROM staged WHERE kind = 1;

CREATE VIEW staged_keys AS
SELECT number, t1 AS key, t2 AS principal, t3 AS fingerprint, n1 AS status, body, n2 AS created_at_ms
FROM staged WHERE kind = 2;

CREATE VIEW staged_events AS
SELECT number, n1 AS sequence, t1 AS kind, t2 AS namespace, t3 AS name, t4 AS entry_id, t5 AS principal, t6 AS key,
    n2 AS at_ms, body AS payload
FROM staged WHERE kind = 3;

-- Of a snapshot there may be several rows: the last that tells a thing is right about it. So there is no view of both parts.
CREATE VIEW staged_facts AS
SELECT number, t1 AS entry_id, n1 AS snapshot_id, n2 AS sequence, body AS footprint
FROM staged WHERE kind = 4;

CREATE VIEW entry_log AS
SELECT entry_id, stream, position, key, tag, body FROM indexed_log
UNION ALL SELECT entry_id, stream, position, key, tag, body FROM staged_log;

CREATE VIEW keys AS
SELECT key, principal, fingerprint, status, body, created_at_ms FROM indexed_keys
UNION ALL SELECT key, principal, fingerprint, status, body, created_at_ms FROM staged_keys;

CREATE VIEW events AS
SELECT sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload FROM indexed_events
UNION ALL SELECT sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload FROM staged_events;

-- Without an index on the location: rows come and go within a second, and are dropped by their numbers.
CREATE TABLE numbered_files (
    number INTEGER PRIMARY KEY,
    location TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    base TEXT,
    tail_bytes INTEGER NOT NULL,
    data BLOB NOT NULL
);

INSERT INTO numbered_files (number, location, created_at_ms, base, tail_bytes, data)
SELECT number, location, created_at_ms, base, tail_bytes, data FROM journal ORDER BY number;

DROP TABLE journal;

ALTER TABLE numbered_files RENAME TO journal;
