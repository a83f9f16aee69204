-- Triggers that maintain the tables derived from records. Per statement, so that a COPY costs little more.

-- Set a missing key_row: that of an earlier version of the record (restored by a rollback), or a new one.
CREATE FUNCTION enter_key_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.key_row := coalesce((SELECT max(key_row) FROM undo_records WHERE rowid = NEW.rowid), nextval('key_rows'));
    RETURN NEW;
END $$;

CREATE TRIGGER record_without_key_row BEFORE INSERT ON records FOR EACH ROW WHEN (NEW.key_row IS NULL)
    EXECUTE FUNCTION enter_key_row();

CREATE FUNCTION record_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM keys WHERE kind <> 'query' AND origin IN (
        SELECT fresh.key_row FROM fresh JOIN old_rows USING (rowid) WHERE fresh.items <> old_rows.items
    );
    RETURN NULL;
END $$;

CREATE FUNCTION record_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM lineage WHERE record IN (SELECT rowid FROM old_rows);
    DELETE FROM heirs WHERE origin IN (SELECT key_row FROM old_rows) OR record IN (SELECT key_row FROM old_rows);
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
