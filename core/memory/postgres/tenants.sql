-- A tenant's own key: nobody learns by a repeated id what another one has sent.
CREATE UNIQUE INDEX jobs_key ON jobs (namespace, id);

-- Bind a login role to a namespace. The first call creates the policies, because they slow every statement's planning.
-- A role that may act as the tables' owner could switch them off, and one that may act as a role above them needs not:
-- binding such a role would protect nothing, and is refused.
CREATE OR REPLACE FUNCTION bind_role(bound name, space text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE kept regclass;
BEGIN
    IF EXISTS (SELECT FROM pg_roles r, pg_roles above, pg_class c
        WHERE r.rolname = bound AND c.oid = 'members'::regclass AND pg_has_role(r.oid, above.oid, 'MEMBER')
        AND (above.rolsuper OR above.rolbypassrls OR above.oid = c.relowner))
    THEN
        RAISE EXCEPTION 'binding % would protect nothing: it may act as the owner of the bank''s tables, or as a role '
            'above row-level security. Let another role own them (docs/memory.md)', bound;
    END IF;
    INSERT INTO members VALUES (bound, space) ON CONFLICT DO NOTHING;
    FOR kept IN SELECT p.polrelid FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
        WHERE p.polname = 'said' AND c.relnamespace = current_schema()::regnamespace
        AND NOT EXISTS (SELECT FROM pg_policy o WHERE o.polrelid = p.polrelid AND o.polname = 'allowed')
    LOOP
        EXECUTE format('CREATE POLICY allowed ON %s AS RESTRICTIVE USING ('
            'NOT EXISTS (SELECT FROM members WHERE role = session_user) '
            'OR namespace IN (SELECT m.namespace FROM members m WHERE m.role = session_user))', kept);
    END LOOP;
END $$;
