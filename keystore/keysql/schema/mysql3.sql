-- Version 3 of what keysql keeps in MySQL and MariaDB: how keys are used.
--
-- A server of an earlier version can go on: it leaves the new columns alone.
-- A row of the new tables goes with its key. A day is the number of days since
-- 1970-01-01, in UTC.

-- The client's address at last_used_at, and since when the tables below have the
-- key's uses.
ALTER TABLE sallyport_keys
	ADD COLUMN last_used_from VARBINARY(64),
	ADD COLUMN observed_since BIGINT;

CREATE TABLE sallyport_keys_scopes (
	id    VARBINARY(512) NOT NULL,
	scope VARBINARY(512) NOT NULL,
	day   INTEGER NOT NULL, -- the last on which a request needed the scope
	PRIMARY KEY (id, scope),
	FOREIGN KEY (id) REFERENCES sallyport_keys (id) ON DELETE CASCADE
) ENGINE=InnoDB;

CREATE TABLE sallyport_keys_days (
	id       VARBINARY(512) NOT NULL,
	day      INTEGER NOT NULL,
	requests BIGINT NOT NULL,
	PRIMARY KEY (id, day),
	KEY sallyport_keys_days_old (day),
	FOREIGN KEY (id) REFERENCES sallyport_keys (id) ON DELETE CASCADE
) ENGINE=InnoDB;
