-- Version 6 of what keysql keeps in Postgres: the audit.
--
-- A server of an earlier version can go on: what it does has no entry.

CREATE TABLE sallyport_keys_audit (
	id           text COLLATE "C" PRIMARY KEY, -- sorts by time
	organization text COLLATE "C" NOT NULL,
	key_id       text COLLATE "C" NOT NULL,
	at           timestamptz NOT NULL,
	act          text COLLATE "C" NOT NULL, -- issue, rotate, revoke, suspend, resume, rename, edit or import
	actor        text COLLATE "C" NOT NULL,
	reason       text COLLATE "C" NOT NULL,
	changes      text COLLATE "C" NOT NULL -- a JSON array of objects: field, before, after
);

CREATE INDEX sallyport_keys_audit_list ON sallyport_keys_audit (organization, id);

CREATE INDEX sallyport_keys_audit_key ON sallyport_keys_audit (organization, key_id, id);

CREATE INDEX sallyport_keys_audit_at ON sallyport_keys_audit (at);
