-- Version 2 of what idemsql keeps in Postgres: a row is found by the time at
-- which it was to be swept when it was claimed. Renewals and settlements change
-- no indexed column, so they rewrite no index (HOT).
--
-- A server of an earlier version can go on. Its rows are looked at a day later.

ALTER TABLE sallyport_idem
	ADD COLUMN sweep_at timestamptz NOT NULL DEFAULT now() + interval '1 day';

DROP INDEX sallyport_idem_expiry;

CREATE INDEX sallyport_idem_sweep ON sallyport_idem (sweep_at);
