-- Units that operations use. The columns say what a claim is charged for, until
-- Run has added it to sallyport_used.

ALTER TABLE sallyport_idem ADD COLUMN account BLOB; -- NULL: nothing is charged, or it is added up
ALTER TABLE sallyport_idem ADD COLUMN began INTEGER; -- when it was claimed
ALTER TABLE sallyport_idem ADD COLUMN units INTEGER;

CREATE INDEX sallyport_idem_account ON sallyport_idem (account) WHERE account IS NOT NULL;

-- What each account has used on a day, with those within it. In place of an account
-- '' has: on day 0 the last number of sallyport_usage, and on day 1 that charges
-- are kept.
CREATE TABLE sallyport_used (
	account        BLOB NOT NULL,
	day            INTEGER NOT NULL, -- since 1970, in UTC
	units          INTEGER NOT NULL,
	PRIMARY KEY (account, day)
) STRICT, WITHOUT ROWID;

INSERT INTO sallyport_used (account, day, units) VALUES (x'', 0, 0);

-- Charges that were not acknowledged.
CREATE TABLE sallyport_usage (
	number         INTEGER PRIMARY KEY,
	id             BLOB NOT NULL, -- of the operation
	account        BLOB NOT NULL,
	units          INTEGER NOT NULL,
	began          INTEGER NOT NULL,
	uncertain      INTEGER NOT NULL -- 1: the outcome is not known
) STRICT;
