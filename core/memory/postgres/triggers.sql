-- Triggers that maintain the tables derived from records. Per statement, so that a COPY costs little more.

-- Set a missing vector_row: that of an earlier version of the record (restored by a rollback), or a new one.
CREATE FUNCTION enter_vector_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.vector_row := coalesce(
        (SELECT max(vector_row) FROM undo_records WHERE rowid = NEW.rowid), nextval('vectors_rowid_seq')
    );
    RETURN NEW;
END $$;

CREATE TRIGGER record_without_vector_row BEFORE INSERT ON records FOR EACH ROW WHEN (NEW.vector_row IS NULL)
    EXECUTE FUNCTION enter_vector_row();

CREATE FUNCTION change_words() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE reworded bigint[] := (
    SELECT array_agg(rowid) FROM fresh JOIN old_rows USING (rowid) WHERE fresh.items <> old_rows.items
);
BEGIN
    IF reworded IS NOT NULL THEN
        DELETE FROM item_vectors WHERE record IN (SELECT vector_row FROM fresh WHERE rowid = ANY (reworded));
        WITH was AS (SELECT rowid, n FROM lexicon WHERE rowid = ANY (reworded)),
        made AS (
            UPDATE lexicon l SET words = w, n = cardinality(w) FROM fresh, words_of(original_query, items) w
            WHERE fresh.rowid = l.rowid AND l.rowid = ANY (reworded) RETURNING l.rowid, l.namespace, l.n
        )
        UPDATE lexicon_size s SET words = s.words + d.more
        FROM (SELECT namespace, sum(made.n - was.n) AS more FROM made JOIN was USING (rowid) GROUP BY 1) d
        WHERE d.namespace = s.namespace;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION drop_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM item_vectors WHERE record IN (SELECT vector_row FROM old_rows);
    WITH gone AS (DELETE FROM lexicon WHERE rowid IN (SELECT rowid FROM old_rows) RETURNING namespace, n)
    UPDATE lexicon_size s SET records = s.records - d.k, words = s.words - d.more
    FROM (SELECT namespace, count(*) AS k, sum(n) AS more FROM gone GROUP BY 1) d WHERE d.namespace = s.namespace;
    DELETE FROM lineage WHERE record IN (SELECT rowid FROM old_rows);
    RETURN NULL;
END $$;

CREATE FUNCTION enter_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lexicon (rowid, namespace, words, n)
        SELECT rowid, namespace, w, cardinality(w) FROM (
            SELECT * FROM fresh -- the statement may have inserted them; OFFSET 0 keeps words_of from running for all
            WHERE NOT EXISTS (SELECT FROM lexicon l WHERE l.rowid = fresh.rowid) OFFSET 0
        ) bare, words_of(original_query, items) w;
    INSERT INTO lexicon_size AS s (namespace, records, words)
        SELECT namespace, count(*), sum(n) FROM lexicon WHERE rowid IN (SELECT rowid FROM fresh) GROUP BY namespace
        ON CONFLICT (namespace) DO UPDATE SET records = s.records + excluded.records, words = s.words + excluded.words;
    IF EXISTS (SELECT FROM fresh WHERE parents <> '[]') THEN
        INSERT INTO lineage (task_id, record, namespace)
            SELECT t.value, rowid, namespace FROM fresh, json_each(json_extract(provenance, '$.tasks')) t
            WHERE parents <> '[]' ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER record_added AFTER INSERT ON records REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION enter_words();
CREATE TRIGGER record_changed AFTER UPDATE ON records REFERENCING NEW TABLE AS fresh OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION change_words();
CREATE TRIGGER record_gone AFTER DELETE ON records REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION drop_words();
