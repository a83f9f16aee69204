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

CREATE FUNCTION record_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM item_vectors WHERE record IN (
        SELECT fresh.vector_row FROM fresh JOIN old_rows USING (rowid) WHERE fresh.items <> old_rows.items
    );
    RETURN NULL;
END $$;

CREATE FUNCTION record_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM item_vectors WHERE record IN (SELECT vector_row FROM old_rows);
    DELETE FROM lineage WHERE record IN (SELECT rowid FROM old_rows);
    RETURN NULL;
END $$;

CREATE FUNCTION record_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM fresh WHERE parents <> '[]') THEN
        INSERT INTO lineage (task_id, record, namespace)
            SELECT t.value, rowid, namespace FROM fresh, json_each(json_extract(provenance, '$.tasks')) t
            WHERE parents <> '[]' ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER record_added AFTER INSERT ON records REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION record_added();
CREATE TRIGGER record_changed AFTER UPDATE ON records REFERENCING NEW TABLE AS fresh OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_changed();
CREATE TRIGGER record_gone AFTER DELETE ON records REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_gone();
