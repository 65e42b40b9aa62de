-- Units that operations use. The columns say what a claim is charged for, until
-- Run has added it to sallyport_used. Who has too many rows to let requests wait
-- while the index is made makes the columns, and then the index CONCURRENTLY,
-- before.

ALTER TABLE sallyport_idem
	ADD COLUMN IF NOT EXISTS account bytea, -- NULL: nothing is charged, or it is added up
	ADD COLUMN IF NOT EXISTS began   bigint, -- when it was claimed, in microseconds since 1970
	ADD COLUMN IF NOT EXISTS units   bigint;

CREATE INDEX IF NOT EXISTS sallyport_idem_account ON sallyport_idem (account) WHERE account IS NOT NULL;

-- What each account has used on a day, with those within it. In place of an account
-- '' has: on day 0 the last number of sallyport_usage, whose row is the lock of who
-- adds up, and on day 1 that charges are kept.
CREATE TABLE sallyport_used (
	account        bytea NOT NULL,
	day            integer NOT NULL, -- since 1970, in UTC
	units          bigint NOT NULL,
	PRIMARY KEY (account, day)
);

INSERT INTO sallyport_used (account, day, units) VALUES ('', 0, 0);

-- Charges that were not acknowledged.
CREATE TABLE sallyport_usage (
	number         bigint PRIMARY KEY,
	id             bytea NOT NULL, -- of the operation, 16 bytes
	account        bytea NOT NULL,
	units          bigint NOT NULL,
	began          bigint NOT NULL,
	uncertain      smallint NOT NULL -- 1: the outcome is not known
);
