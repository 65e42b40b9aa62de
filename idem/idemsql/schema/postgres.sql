-- Version 1 of what idemsql keeps in Postgres, 12 or later.
--
-- One row for each key of a request: a claim, or what became of it. All
-- times are of this server's clock.

CREATE TABLE sallyport_idem (
	request_key    bytea PRIMARY KEY CHECK (octet_length(request_key) = 32),
	token          bytea NOT NULL, -- who holds the claim, or settled it
	fingerprint    bytea NOT NULL CHECK (octet_length(fingerprint) = 32), -- of the first request
	attempt        integer NOT NULL,
	state          smallint NOT NULL CHECK (state IN (1, 3, 4)), -- claimed, done, outcome unknown
	lease_ends     timestamptz NOT NULL, -- of a claim
	expires_at     timestamptz NOT NULL, -- from then on the row counts for nothing
	payload        bytea NOT NULL -- the reply, once done
) WITH (fillfactor = 85); -- lease_ends is rewritten while a request runs, best within its page

CREATE INDEX sallyport_idem_expiry ON sallyport_idem (expires_at);
