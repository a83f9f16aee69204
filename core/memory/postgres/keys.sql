-- The keys of tables with ids. An id may have any length, and an entry of a b-tree at most 2704 bytes: so ids are unique
-- by their md5 hash, and found by a hash index, which row-level security allows (it would not allow md5 in a condition).

CREATE UNIQUE INDEX records_key ON records (namespace, md5(id));
CREATE INDEX records_by_id ON records USING hash (id);
CREATE UNIQUE INDEX lineage_key ON lineage (md5(task_id), record);
CREATE INDEX lineage_by_task ON lineage USING hash (task_id);
CREATE UNIQUE INDEX links_key ON links (namespace, md5(source), relation, md5(target));
CREATE INDEX links_by_source ON links USING hash (source);
CREATE INDEX links_by_target ON links USING hash (target);
CREATE INDEX undo_records_by_key ON undo_records (rowid);
CREATE INDEX undo_links_by_key ON undo_links (namespace, md5(source));
CREATE INDEX undo_facts_by_key ON undo_facts (namespace, key);
