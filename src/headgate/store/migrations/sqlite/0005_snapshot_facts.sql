-- What is known of a snapshot beside its metadata: the event that brought it, which tells who committed it and under which
-- key, and its footprint. One row instead of one in each of two tables: a commit adds it by one insert. Rows in order of
-- arrival, as in entry_log: clustered by its ids, a row of more than a quarter of a page would take a page of its own. No
-- reference to entries, which would be looked up for each row; the event is known even after a drop.
CREATE TABLE snapshot_facts (
    entry_id TEXT NOT NULL,
    snapshot_id INTEGER NOT NULL,
    sequence INTEGER,
    footprint BLOB,
    PRIMARY KEY (entry_id, snapshot_id)
);

INSERT INTO snapshot_facts (entry_id, snapshot_id, sequence)
SELECT entry_id, snapshot_id, max(sequence) FROM event_snapshots GROUP BY entry_id, snapshot_id;

INSERT INTO snapshot_facts (entry_id, snapshot_id, footprint)
SELECT entry_id, snapshot_id, body FROM footprints WHERE true
ON CONFLICT (entry_id, snapshot_id) DO UPDATE SET footprint = excluded.footprint;

DROP TABLE event_snapshots;

DROP TABLE footprints;
