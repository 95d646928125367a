-- The feed of one entry, in order.
CREATE INDEX events_entry ON events (entry_id, sequence) WHERE entry_id IS NOT NULL;

-- Which event brought a snapshot: who committed it, and under which key.
CREATE TABLE event_snapshots (
    entry_id TEXT NOT NULL,
    snapshot_id INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (entry_id, snapshot_id, sequence)
) WITHOUT ROWID;

INSERT OR IGNORE INTO event_snapshots (entry_id, snapshot_id, sequence)
SELECT entry_id, json_extract(added.value, '$.snapshot-id'), sequence
FROM events, json_each(CAST(payload AS TEXT), '$.added-snapshots') AS added
WHERE entry_id IS NOT NULL;
