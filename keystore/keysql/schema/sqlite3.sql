-- Version 3 of what keysql keeps in SQLite: attributes, networks and the mark of
-- a legacy key.
--
-- A server of an earlier version can go on: it inserts keys without them.

ALTER TABLE sallyport_keys ADD COLUMN legacy TEXT NOT NULL DEFAULT ''; -- name of the token's shape; '' for the present one
ALTER TABLE sallyport_keys ADD COLUMN attributes TEXT NOT NULL DEFAULT '{}'; -- a JSON object of texts
ALTER TABLE sallyport_keys ADD COLUMN networks TEXT NOT NULL DEFAULT '[]'; -- a JSON array such as ["192.0.2.0/24"]; empty: any

DROP TRIGGER sallyport_keys_change;

CREATE TRIGGER sallyport_keys_change
	AFTER UPDATE OF organization, environment, name, scopes, expires_at, revoked_at, suspended, legacy, attributes, networks ON sallyport_keys
BEGIN
	UPDATE sallyport_keys_changes SET number = number + 1;
	UPDATE sallyport_keys SET version = OLD.version + 1, changed = (SELECT number FROM sallyport_keys_changes)
	WHERE id = NEW.id;
END;
