-- A file may be its bytes here and then the last bytes of another file, which is older: a manifest list after its parent's.
ALTER TABLE journal ADD COLUMN base TEXT COLLATE "C";
ALTER TABLE journal ADD COLUMN tail_bytes BIGINT NOT NULL DEFAULT 0;
