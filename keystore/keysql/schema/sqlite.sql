-- Version 1 of what keysql keeps in SQLite, 3.38 or later.
--
-- Times are microseconds since 1970 in UTC.

CREATE TABLE sallyport_keys (
	id           TEXT NOT NULL PRIMARY KEY,
	digest       BLOB NOT NULL UNIQUE CHECK (length(digest) = 32), -- SHA-256 of the token
	organization TEXT NOT NULL,
	environment  TEXT NOT NULL, -- production or sandbox
	name         TEXT NOT NULL,
	hint         TEXT NOT NULL, -- the last four characters of the token
	scopes       TEXT NOT NULL, -- a JSON array of names
	created_at   INTEGER NOT NULL,
	created_by   TEXT NOT NULL,
	expires_at   INTEGER,
	revoked_at   INTEGER,
	suspended    INTEGER NOT NULL,
	last_used_at INTEGER,
	issue_token  TEXT NOT NULL,
	rotated_from TEXT NOT NULL,
	version      INTEGER NOT NULL,
	changed      INTEGER -- the number of the key's last change
) STRICT;

CREATE INDEX sallyport_keys_list ON sallyport_keys (organization, created_at, id);

CREATE UNIQUE INDEX sallyport_keys_issue ON sallyport_keys (organization, created_by, issue_token)
	WHERE issue_token <> '';

CREATE INDEX sallyport_keys_feed ON sallyport_keys (changed, digest) WHERE changed IS NOT NULL;

-- The number of changes so far. It is not the highest number in the other
-- table, which would be given out again after that key was deleted.
CREATE TABLE sallyport_keys_changes (number INTEGER NOT NULL) STRICT;

INSERT INTO sallyport_keys_changes VALUES (0);

-- A trigger, so that a key which somebody revokes by hand reaches the caches
-- too, and is not brought back by a program that has read it before.
CREATE TRIGGER sallyport_keys_change
	AFTER UPDATE OF organization, environment, name, scopes, expires_at, revoked_at, suspended ON sallyport_keys
BEGIN
	UPDATE sallyport_keys_changes SET number = number + 1;
	UPDATE sallyport_keys SET version = OLD.version + 1, changed = (SELECT number FROM sallyport_keys_changes)
	WHERE id = NEW.id;
END;
