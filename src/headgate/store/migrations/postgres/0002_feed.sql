-- The feed of one entry, in order.
CREATE INDEX events_entry ON events (entry_id, sequence) WHERE entry_id IS NOT NULL;

-- Which event brought a snapshot: who committed it, and under which key.
CREATE TABLE event_snapshots (
    entry_id TEXT COLLATE "C" NOT NULL,
    snapshot_id BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    PRIMARY KEY (entry_id, snapshot_id, sequence)
);

INSERT INTO event_snapshots (entry_id, snapshot_id, sequence)
SELECT entry_id, (added ->> 'snapshot-id')::bigint, sequence
FROM events, json_array_elements(convert_from(payload, 'UTF8')::json -> 'added-snapshots') AS added
WHERE entry_id IS NOT NULL
ON CONFLICT DO NOTHING;
