-- Version 5 of what keysql keeps in SQLite: how keys are used.
--
-- A server of an earlier version can go on: it leaves the new columns alone.
-- A row of the new tables goes with its key. A day is the number of days since
-- 1970-01-01, in UTC.

ALTER TABLE sallyport_keys ADD COLUMN last_used_from TEXT;    -- the client's address at last_used_at
ALTER TABLE sallyport_keys ADD COLUMN observed_since INTEGER; -- since when the tables below have the key's uses

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
