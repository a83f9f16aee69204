-- How a record names the row of its vector, and those of its items; for new banks, and for those of schema 1.

GRANT USAGE ON SEQUENCE vectors_rowid_seq TO PUBLIC; -- whom the table lets add rows; these are numbers alone
CREATE INDEX records_by_vector ON records (vector_row);

-- A record that comes without a row for its vector has been here before, and has that one again, or is new.
CREATE FUNCTION enter_vector_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.vector_row := coalesce(
        (SELECT max(vector_row) FROM undo_records WHERE rowid = NEW.rowid), nextval('vectors_rowid_seq')
    );
    RETURN NEW;
END $$;

CREATE TRIGGER record_without_vector_row BEFORE INSERT ON records FOR EACH ROW WHEN (NEW.vector_row IS NULL)
    EXECUTE FUNCTION enter_vector_row();

CREATE OR REPLACE FUNCTION change_words() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE FUNCTION drop_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM item_vectors WHERE record IN (SELECT vector_row FROM old_rows);
    WITH gone AS (DELETE FROM lexicon WHERE rowid IN (SELECT rowid FROM old_rows) RETURNING namespace, n)
    UPDATE lexicon_size s SET records = s.records - d.k, words = s.words - d.more
    FROM (SELECT namespace, count(*) AS k, sum(n) AS more FROM gone GROUP BY 1) d WHERE d.namespace = s.namespace;
    DELETE FROM lineage WHERE record IN (SELECT rowid FROM old_rows);
    RETURN NULL;
END $$;
