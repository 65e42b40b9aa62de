-- What idemsql keeps in Postgres, 12 or later.
--
-- One row for each key of a request: a claim, or what became of it. All
-- times are of this server's clock. There are no checks: Postgres reads their
-- texts again for each statement that writes, which took an eighth of its time
-- for a joined request. Store checks what it reads.

CREATE TABLE sallyport_idem (
	request_key    bytea PRIMARY KEY, -- 32 bytes
	token          bytea NOT NULL, -- who holds the claim, or settled it
	fingerprint    bytea NOT NULL, -- of the first request, 32 bytes
	attempt        integer NOT NULL,
	state          smallint NOT NULL, -- 1, 3, 4: claimed, done, outcome unknown
	lease_ends     timestamptz NOT NULL, -- of a claim
	expires_at     timestamptz NOT NULL, -- from then on the row counts for nothing
	payload        bytea NOT NULL, -- the reply, once done

	-- When the row is looked at by the sweep. Renewals and settlements change no
	-- indexed column, so they rewrite no index (HOT).
	sweep_at       timestamptz NOT NULL DEFAULT now() + interval '1 day'
) WITH (fillfactor = 85); -- lease_ends is rewritten while a request runs, best within its page

CREATE INDEX sallyport_idem_sweep ON sallyport_idem (sweep_at);
