-- When you change one, raise SCHEMA in setup.py. Triggers that maintain the tables derived from records. The undo triggers are in setup.py.

CREATE TRIGGER IF NOT EXISTS record_added AFTER INSERT ON records BEGIN
    INSERT OR IGNORE INTO lineage
        SELECT value, new.rowid FROM json_each(new.provenance, '$.tasks') WHERE new.parents <> '[]';
    INSERT INTO touched (record, found) -- a restored record; new ones are noticed by their row id
        SELECT new.rowid, 1 FROM sqlite_sequence WHERE name = 'records' AND seq >= new.rowid;
END;

CREATE TRIGGER IF NOT EXISTS record_changed AFTER UPDATE ON records BEGIN
    INSERT INTO touched (record, found) VALUES (
        old.rowid,
        old.status <> new.status OR old.outcome <> new.outcome OR old.domain <> new.domain OR old.tags <> new.tags
        OR old.items <> new.items
    );
END;

CREATE TRIGGER IF NOT EXISTS record_reworded AFTER UPDATE ON records WHEN old.items <> new.items BEGIN
    DELETE FROM keys WHERE origin = old.rowid AND kind <> 'query';
END;

CREATE TRIGGER IF NOT EXISTS heir_added AFTER INSERT ON heirs BEGIN
    INSERT INTO touched (record, found) VALUES (new.origin, 1);
END;

CREATE TRIGGER IF NOT EXISTS heir_gone AFTER DELETE ON heirs BEGIN
    INSERT INTO touched (record, found) VALUES (old.origin, 1);
END;

CREATE TRIGGER IF NOT EXISTS record_gone AFTER DELETE ON records BEGIN
    INSERT INTO touched (record, found) VALUES (old.rowid, 1);
    DELETE FROM lineage WHERE record = old.rowid;
    DELETE FROM heirs WHERE origin = old.rowid OR record = old.rowid;
END;
