-- What idemsql keeps in SQLite, 3.42 or later.
--
-- One row for each key of a request: a claim, or what became of it. Times are
-- microseconds since 1970 in UTC, of this machine's clock.

CREATE TABLE sallyport_idem (
	request_key    BLOB PRIMARY KEY NOT NULL CHECK (length(request_key) = 32),
	token          BLOB NOT NULL, -- who holds the claim, or settled it
	fingerprint    BLOB NOT NULL CHECK (length(fingerprint) = 32), -- of the first request
	attempt        INTEGER NOT NULL,
	state          INTEGER NOT NULL CHECK (state IN (1, 3, 4)), -- claimed, done, outcome unknown
	lease_ends     INTEGER NOT NULL, -- of a claim
	expires_at     INTEGER NOT NULL, -- from then on the row counts for nothing
	payload        BLOB NOT NULL -- the reply, once done
) STRICT;

CREATE INDEX sallyport_idem_expiry ON sallyport_idem (expires_at);
