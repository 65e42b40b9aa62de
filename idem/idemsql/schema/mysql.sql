-- What idemsql keeps in MySQL, 8.0.22 or later, and MariaDB, 10.6 or later.
--
-- One row for each key of a request: a claim, or what became of it. Times are
-- microseconds since 1970 in UTC, of this server's clock. Migrate runs one
-- statement at a time: each ends with a semicolon and an empty line.

CREATE TABLE sallyport_idem (
	request_key    BINARY(32) NOT NULL PRIMARY KEY,
	token          BINARY(16) NOT NULL, -- who holds the claim, or settled it
	fingerprint    BINARY(32) NOT NULL, -- of the first request
	attempt        INTEGER NOT NULL,
	state          TINYINT NOT NULL CHECK (state IN (1, 3, 4)), -- claimed, done, outcome unknown
	lease_ends     BIGINT NOT NULL, -- of a claim
	expires_at     BIGINT NOT NULL, -- from then on the row counts for nothing
	payload        LONGBLOB NOT NULL, -- the reply, once done

	KEY sallyport_idem_expiry (expires_at)
) ENGINE=InnoDB;
