-- The bank's tables and views. When you change one, raise SCHEMA in setup.py and add a step to migrations.py.

-- Values of the whole bank, such as schema and embedder. They are not rolled back.
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);

-- AUTOINCREMENT: row ids are never reused, so an index may store them.
CREATE TABLE IF NOT EXISTS records (
    rowid INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    status TEXT NOT NULL,
    outcome TEXT NOT NULL,
    domain TEXT NOT NULL,
    tags TEXT NOT NULL,
    task_id TEXT NOT NULL,
    original_query TEXT NOT NULL,
    items TEXT NOT NULL,
    source_trajectory_id TEXT NOT NULL,
    score REAL NOT NULL,
    label_source TEXT NOT NULL,
    created_at TEXT NOT NULL,
    tick INTEGER NOT NULL,
    confidence REAL,
    n_used INTEGER NOT NULL,
    n_used_success INTEGER NOT NULL,
    n_helpful INTEGER NOT NULL,
    n_harmful INTEGER NOT NULL,
    last_used INTEGER,
    trust REAL NOT NULL,
    parents TEXT NOT NULL,
    provenance TEXT NOT NULL,
    folded_tags TEXT NOT NULL, -- JSON list of tags normalised for comparison
    UNIQUE (namespace, id)
);
CREATE INDEX IF NOT EXISTS records_by_task ON records (namespace, task_id);
CREATE INDEX IF NOT EXISTS records_by_tick ON records (tick);

-- What records are found by: the embeddings of their queries, and with memory.key=item or joined of their lessons. A table
-- of its own, so that records can be read without vectors. A key outlives its record, for a rollback.
CREATE TABLE IF NOT EXISTS keys (
    origin INTEGER NOT NULL, -- row id of the record whose text it is
    kind TEXT NOT NULL, -- query | item | joined (store/keys.py)
    place INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (origin, kind, place)
);

-- The records that the keys of a merged or superseded one lead to, by row ids; the keys of all others lead to their own.
CREATE TABLE IF NOT EXISTS heirs ( -- the key's columns first: quick_check of SQLite 3.40 takes others for NULL
    origin INTEGER NOT NULL, record INTEGER NOT NULL, namespace TEXT NOT NULL, PRIMARY KEY (origin, record)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS heirs_by_record ON heirs (record);

-- All source tasks of each merged record.
CREATE TABLE IF NOT EXISTS lineage (
    task_id TEXT NOT NULL, record INTEGER NOT NULL, PRIMARY KEY (task_id, record)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lineage_by_record ON lineage (record);

CREATE TABLE IF NOT EXISTS links (
    namespace TEXT NOT NULL, source TEXT NOT NULL, relation TEXT NOT NULL, target TEXT NOT NULL, note TEXT NOT NULL,
    PRIMARY KEY (namespace, source, relation, target)
);
CREATE INDEX IF NOT EXISTS links_by_target ON links (namespace, target, relation, source); -- covering, else SQLite takes the primary key

-- Values of a namespace, rolled back with its records.
CREATE TABLE IF NOT EXISTS facts (
    namespace TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (namespace, key)
);

CREATE TABLE IF NOT EXISTS journal (
    seq INTEGER PRIMARY KEY, at TEXT NOT NULL, tick INTEGER NOT NULL, reason TEXT NOT NULL
);

-- The server's queue.
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, namespace TEXT NOT NULL, state TEXT NOT NULL, payload TEXT NOT NULL, result TEXT NOT NULL,
    tries INTEGER NOT NULL, created_at TEXT NOT NULL, changed_at TEXT NOT NULL
);

-- Log of changed records, for search indexes and caches. found = 1: in a column that a search uses.
CREATE TABLE IF NOT EXISTS touched (seq INTEGER PRIMARY KEY AUTOINCREMENT, record INTEGER NOT NULL, found INTEGER);

-- The bank by the tables of Claude Flow's outline, for queries by hand. Only read; banks from before do not have them.
CREATE VIEW IF NOT EXISTS patterns AS
SELECT namespace, id, 'reasoning_memory' AS type, json_object(
    'title', json_extract(items, '$[0].title'), 'description', json_extract(items, '$[0].description'),
    'content', json_extract(items, '$[0].content'), 'items', json(items), 'source', json_object(
        'task_id', task_id, 'agent_id', namespace, 'outcome', outcome, 'evidence', json_extract(provenance, '$.evidence')
    ), 'tags', json(tags), 'domain', domain, 'created_at', created_at, 'confidence', confidence, 'n_uses', n_used
) AS pattern_data, confidence, n_used AS usage_count, created_at, last_used, status FROM records;

CREATE VIEW IF NOT EXISTS pattern_embeddings AS
SELECT namespace, id, (SELECT value FROM meta WHERE key = 'embedder') AS model, length(vector) / 4 AS dims, vector,
    created_at FROM records r JOIN keys k ON k.origin = r.rowid AND k.kind = 'query';

-- weight: the similarity at the end of a link's note; created_at: as the journal says
CREATE VIEW IF NOT EXISTS pattern_links AS
SELECT namespace, source AS src_id, target AS dst_id, relation, note, CASE
    WHEN instr(note, 'cosine ') > 0 AND substr(note, instr(note, 'cosine ') + 7) NOT GLOB '*[^-0-9.]*'
    THEN CAST(substr(note, instr(note, 'cosine ') + 7) AS REAL)
END AS weight, (
    SELECT max(j.at) FROM undo_links u JOIN journal j ON j.seq = u.seq WHERE NOT u.was_there
    AND u.namespace = l.namespace AND u.source = l.source AND u.relation = l.relation AND u.target = l.target
) AS created_at FROM links l;
