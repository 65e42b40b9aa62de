-- Version 3 of what keysql keeps in Postgres: attributes, networks and the mark
-- of a legacy key.
--
-- A server of an earlier version can go on: it inserts keys without them.

ALTER TABLE sallyport_keys
	ADD COLUMN legacy     text COLLATE "C" NOT NULL DEFAULT '',   -- name of the token's shape; '' for the present one
	ADD COLUMN attributes text COLLATE "C" NOT NULL DEFAULT '{}', -- a JSON object of texts
	ADD COLUMN networks   text COLLATE "C" NOT NULL DEFAULT '[]'; -- a JSON array such as ["192.0.2.0/24"]; empty: any

DROP TRIGGER sallyport_keys_change ON sallyport_keys;

CREATE TRIGGER sallyport_keys_change
	BEFORE UPDATE OF organization, environment, name, scopes, expires_at, revoked_at, suspended, legacy, attributes, networks ON sallyport_keys
	FOR EACH ROW EXECUTE FUNCTION sallyport_keys_change();
