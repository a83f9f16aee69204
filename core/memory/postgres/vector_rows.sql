-- How a record names the row of its vector; for new banks, and for those of schema 1.

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
