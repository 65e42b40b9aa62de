-- Version 5 of what keysql keeps in Postgres: how keys are used.
--
-- A server of an earlier version can go on: it leaves the new columns alone.
-- A row of the new tables goes with its key. A day is the number of days since
-- 1970-01-01, in UTC.

ALTER TABLE sallyport_keys
	ADD COLUMN last_used_from text COLLATE "C", -- the client's address at last_used_at
	ADD COLUMN observed_since timestamptz;      -- since when the tables below have the key's uses

CREATE TABLE sallyport_keys_scopes (
	id    text COLLATE "C" NOT NULL REFERENCES sallyport_keys ON DELETE CASCADE,
	scope text COLLATE "C" NOT NULL,
	day   integer NOT NULL, -- the last on which a request needed the scope
	PRIMARY KEY (id, scope)
);

CREATE TABLE sallyport_keys_days (
	id       text COLLATE "C" NOT NULL REFERENCES sallyport_keys ON DELETE CASCADE,
	day      integer NOT NULL,
	requests bigint NOT NULL,
	PRIMARY KEY (id, day)
) WITH (fillfactor = 85); -- requests is rewritten all the time, best within its page

CREATE INDEX sallyport_keys_days_old ON sallyport_keys_days (day);
