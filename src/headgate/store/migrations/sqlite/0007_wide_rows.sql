-- What a commit adds is one row of `staged_rows`, not five of `staged`, and the files it journals are in that row too. Each kind of thing has
-- columns of its own, so a row holds up to one key, one event, the facts of one snapshot, two log items and two files; what
-- is in one row need not belong together. Long columns come last: who looks for a key reads none of them. The table and the view
-- of log items have new names: a service of an older version would move rows without their files, and cannot find them so.

INSERT INTO indexed_log (entry_id, stream, position, key, tag, body)
SELECT entry_id, stream, position, key, tag, body FROM staged_log ORDER BY number;

INSERT INTO indexed_keys (key, principal, fingerprint, status, body, created_at_ms)
SELECT key, principal, fingerprint, status, body, created_at_ms FROM staged_keys ORDER BY number;

INSERT INTO indexed_events (sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload)
SELECT sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload FROM staged_events ORDER BY number;

INSERT INTO indexed_facts (entry_id, snapshot_id, sequence, footprint)
SELECT entry_id, snapshot_id, sequence, footprint FROM staged_facts WHERE true ORDER BY number
ON CONFLICT (entry_id, snapshot_id) DO UPDATE SET
    sequence = coalesce(excluded.sequence, sequence), footprint = coalesce(excluded.footprint, footprint);

DROP VIEW entry_log;

DROP VIEW keys;

DROP VIEW events;

DROP VIEW staged_log;

DROP VIEW staged_keys;

DROP VIEW staged_events;

DROP VIEW staged_facts;

DROP TABLE staged;

CREATE TABLE staged_rows (
    number INTEGER PRIMARY KEY,
    key TEXT,
    principal TEXT,
    fingerprint TEXT,
    status INTEGER,
    created_at_ms INTEGER,
    sequence INTEGER,
    kind TEXT,
    namespace TEXT,
    name TEXT,
    event_entry_id TEXT,
    event_principal TEXT,
    event_key TEXT,
    at_ms INTEGER,
    facts_entry_id TEXT,
    snapshot_id INTEGER,
    facts_sequence INTEGER,
    a_entry_id TEXT,
    a_stream INTEGER,
    a_position INTEGER,
    a_key INTEGER,
    a_tag INTEGER,
    b_entry_id TEXT,
    b_stream INTEGER,
    b_position INTEGER,
    b_key INTEGER,
    b_tag INTEGER,
    a_location TEXT,
    a_created_at_ms INTEGER,
    a_base TEXT,
    a_tail_bytes INTEGER,
    b_location TEXT,
    b_created_at_ms INTEGER,
    b_base TEXT,
    b_tail_bytes INTEGER,
    key_body BLOB,
    footprint BLOB,
    a_body BLOB,
    b_body BLOB,
    payload BLOB,
    a_data BLOB,
    b_data BLOB
);

CREATE VIEW staged_items AS
SELECT 2 * number AS number, a_entry_id AS entry_id, a_stream AS stream, a_position AS position, a_key AS key, a_tag AS tag,
    a_body AS body
FROM staged_rows WHERE a_position IS NOT NULL
UNION ALL
SELECT 2 * number + 1, b_entry_id, b_stream, b_position, b_key, b_tag, b_body FROM staged_rows WHERE b_position IS NOT NULL;

CREATE VIEW staged_keys AS
SELECT number, key, principal, fingerprint, status, key_body AS body, created_at_ms FROM staged_rows WHERE key IS NOT NULL;

CREATE VIEW staged_events AS
SELECT number, sequence, kind, namespace, name, event_entry_id AS entry_id, event_principal AS principal, event_key AS key,
    at_ms, payload
FROM staged_rows WHERE sequence IS NOT NULL;

-- Of a snapshot there may be several rows: the last that tells a thing is right about it. So there is no view of both parts.
CREATE VIEW staged_facts AS
SELECT number, facts_entry_id AS entry_id, snapshot_id, facts_sequence AS sequence, footprint
FROM staged_rows WHERE snapshot_id IS NOT NULL;

CREATE VIEW staged_files AS
SELECT 2 * number AS number, a_location AS location, a_created_at_ms AS created_at_ms, a_base AS base,
    a_tail_bytes AS tail_bytes, a_data AS data
FROM staged_rows WHERE a_location IS NOT NULL
UNION ALL
SELECT 2 * number + 1, b_location, b_created_at_ms, b_base, b_tail_bytes, b_data FROM staged_rows WHERE b_location IS NOT NULL;

CREATE VIEW entry_log AS
SELECT entry_id, stream, position, key, tag, body FROM indexed_log
UNION ALL
SELECT a_entry_id, a_stream, a_position, a_key, a_tag, a_body FROM staged_rows WHERE a_position IS NOT NULL
UNION ALL
SELECT b_entry_id, b_stream, b_position, b_key, b_tag, b_body FROM staged_rows WHERE b_position IS NOT NULL;

CREATE VIEW keys AS
SELECT key, principal, fingerprint, status, body, created_at_ms FROM indexed_keys
UNION ALL SELECT key, principal, fingerprint, status, body, created_at_ms FROM staged_keys;

CREATE VIEW events AS
SELECT sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload FROM indexed_events
UNION ALL SELECT sequence, kind, namespace, name, entry_id, principal, key, at_ms, payload FROM staged_events;
