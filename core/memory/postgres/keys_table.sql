-- A table of its own, so that changing a record does not touch the vector index; it names records by numbers of its own
-- (`key_row`), so that keys, which take longest to insert, can be inserted before the writers' lock is taken.
CREATE SEQUENCE key_rows;
GRANT USAGE ON SEQUENCE key_rows TO PUBLIC; -- for all who may insert into the table (only numbers)
CREATE INDEX records_by_key_row ON records (key_row);
CREATE TABLE keys (
    origin bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    vector vector NOT NULL,
    namespace text COLLATE "C" NOT NULL DEFAULT current_setting('reasoningbank.namespace') CHECK (namespace <> '*'),
    PRIMARY KEY (origin, kind, place)
);
CREATE INDEX keys_by_namespace ON keys (namespace, kind);
CREATE TABLE heirs ( -- its numbers are those of `keys`
    origin bigint NOT NULL, record bigint NOT NULL, namespace text COLLATE "C" NOT NULL, PRIMARY KEY (origin, record)
);
CREATE INDEX heirs_by_record ON heirs (record);
