-- A bank of schema 1, where the row of a vector had the number of its record, gets the columns of schema 2.
LOCK TABLE records, vectors, undo_records; -- in the order in which a writer comes to them
ALTER TABLE vectors ALTER rowid ADD GENERATED ALWAYS AS IDENTITY;
SELECT setval('vectors_rowid_seq', last_value) FROM records_rowid_seq;
ALTER TABLE records ADD vector_row bigint, DISABLE TRIGGER USER;
UPDATE records SET vector_row = rowid;
ALTER TABLE records ALTER vector_row SET NOT NULL, ENABLE TRIGGER USER;
ALTER TABLE undo_records ADD vector_row bigint;
UPDATE undo_records SET vector_row = rowid WHERE was_there;
DROP FUNCTION undo_INSERT_records, undo_UPDATE_records, undo_DELETE_records CASCADE;
