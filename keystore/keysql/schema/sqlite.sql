-- What keysql keeps in SQLite, 3.38 or later.
--
-- Times are microseconds since 1970 in UTC. A day is the number of days since
-- 1970-01-01, in UTC.

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
	rotated_from TEXT NOT NULL, -- of a child: itself, so that nothing can rotate it
	version      INTEGER NOT NULL,
	changed      INTEGER, -- the number of the key's last change
	legacy       TEXT NOT NULL DEFAULT '',   -- name of the token's shape; '' for the present one
	attributes   TEXT NOT NULL DEFAULT '{}', -- a JSON object of texts
	networks     TEXT NOT NULL DEFAULT '[]', -- a JSON array such as ["192.0.2.0/24"]; empty: any

	last_used_from TEXT,    -- the client's address at last_used_at
	observed_since INTEGER, -- since when scopes and days have the key's uses

	parent TEXT NOT NULL DEFAULT '', -- id of a key; '' for none; never changes
	root   TEXT NOT NULL DEFAULT ''  -- id of the last ancestor; '' for none
) STRICT;

CREATE UNIQUE INDEX sallyport_keys_issue ON sallyport_keys (organization, created_by, issue_token)
	WHERE issue_token <> '';

CREATE UNIQUE INDEX sallyport_keys_successor ON sallyport_keys (organization, rotated_from) -- a key has one successor
	WHERE rotated_from <> '';

CREATE INDEX sallyport_keys_feed ON sallyport_keys (changed, digest) WHERE changed IS NOT NULL;

CREATE INDEX sallyport_keys_list ON sallyport_keys (organization, created_at, id);

CREATE INDEX sallyport_keys_children ON sallyport_keys (parent, organization, created_at, id);

CREATE INDEX sallyport_keys_live ON sallyport_keys (parent, revoked_at, expires_at) WHERE parent <> '';

CREATE INDEX sallyport_keys_below ON sallyport_keys (root, revoked_at, expires_at) WHERE root <> '';

CREATE INDEX sallyport_keys_ends ON sallyport_keys (ifnull(min(expires_at, revoked_at), ifnull(expires_at, revoked_at))) WHERE parent <> '';

CREATE INDEX sallyport_keys_expires ON sallyport_keys (parent, expires_at, id) WHERE parent = '';

CREATE INDEX sallyport_keys_count ON sallyport_keys (organization, expires_at) WHERE parent = '' AND revoked_at IS NULL;

-- The number of changes so far. It is not the highest number in the other
-- table, which would be given out again after that key was deleted.
CREATE TABLE sallyport_keys_changes (number INTEGER NOT NULL) STRICT;

INSERT INTO sallyport_keys_changes VALUES (0);

-- Triggers, so that a key which somebody inserts or revokes by hand reaches the
-- caches too, and is not brought back by a program that has read it before.
CREATE TRIGGER sallyport_keys_insert AFTER INSERT ON sallyport_keys
BEGIN
	UPDATE sallyport_keys_changes SET number = number + 1;
	UPDATE sallyport_keys SET changed = (SELECT number FROM sallyport_keys_changes) WHERE id = NEW.id;
END;

CREATE TRIGGER sallyport_keys_change
	AFTER UPDATE OF organization, environment, name, scopes, expires_at, revoked_at, suspended, legacy, attributes, networks ON sallyport_keys
BEGIN
	UPDATE sallyport_keys_changes SET number = number + 1;
	UPDATE sallyport_keys SET version = OLD.version + 1, changed = (SELECT number FROM sallyport_keys_changes)
	WHERE id = NEW.id;
END;

-- How keys are used.
CREATE TABLE sallyport_keys_scopes (
	id    TEXT NOT NULL,
	scope TEXT NOT NULL,
	day   INTEGER NOT NULL, -- the last on which a request needed the scope
	PRIMARY KEY (id, scope)
) STRICT, WITHOUT ROWID;

CREATE TABLE sallyport_keys_days (
	id       TEXT NOT NULL,
	day      INTEGER NOT NULL,
	requests INTEGER NOT NULL,
	PRIMARY KEY (id, day)
) STRICT, WITHOUT ROWID;

CREATE INDEX sallyport_keys_days_old ON sallyport_keys_days (day);

-- A trigger, because SQLite looks at foreign keys only when a connection asks
-- for it.
CREATE TRIGGER sallyport_keys_delete AFTER DELETE ON sallyport_keys
BEGIN
	DELETE FROM sallyport_keys_scopes WHERE id = OLD.id;
	DELETE FROM sallyport_keys_days WHERE id = OLD.id;
END;

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
