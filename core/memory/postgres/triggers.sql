-- What follows from the records, kept for every writer, a statement at a time so that a COPY costs little more.

CREATE FUNCTION enter_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lexicon (rowid, namespace, words, n)
        SELECT rowid, namespace, w, cardinality(w) FROM (
            SELECT * FROM fresh -- a statement may have brought them; without OFFSET the words of all would be made first
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
