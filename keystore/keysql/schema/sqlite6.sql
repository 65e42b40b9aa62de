-- Version 6 of what keysql keeps in SQLite: the audit.
--
-- A server of an earlier version can go on: what it does has no entry.

CREATE TABLE sallyport_keys_audit (
	id           TEXT NOT NULL PRIMARY KEY, -- sorts by time
	organization TEXT NOT NULL,
	key_id       TEXT NOT NULL,
	at           INTEGER NOT NULL,
	act          TEXT NOT NULL, -- issue, rotate, revoke, suspend, resume, rename, edit or import
	actor        TEXT NOT NULL,
	reason       TEXT NOT NULL,
	changes      TEXT NOT NULL -- a JSON array of objects: field, before, after
) STRICT;

CREATE INDEX sallyport_keys_audit_list ON sallyport_keys_audit (organization, id);

CREATE INDEX sallyport_keys_audit_key ON sallyport_keys_audit (organization, key_id, id);

CREATE INDEX sallyport_keys_audit_at ON sallyport_keys_audit (at);
