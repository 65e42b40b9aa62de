-- Version 4 of what keysql keeps in MySQL and MariaDB: the audit.
--
-- A server of an earlier version can go on: what it does has no entry.

CREATE TABLE sallyport_keys_audit (
	id           VARBINARY(512) NOT NULL PRIMARY KEY, -- sorts by time
	organization VARBINARY(512) NOT NULL,
	key_id       VARBINARY(512) NOT NULL,
	at           BIGINT NOT NULL,
	act          VARBINARY(512) NOT NULL, -- issue, rotate, revoke, suspend, resume, rename, edit or import
	actor        VARBINARY(512) NOT NULL,
	reason       VARBINARY(512) NOT NULL,
	changes      LONGBLOB NOT NULL, -- a JSON array of objects: field, before, after

	KEY sallyport_keys_audit_list (organization, id),
	KEY sallyport_keys_audit_key (organization, key_id, id),
	KEY sallyport_keys_audit_at (at)
) ENGINE=InnoDB;
