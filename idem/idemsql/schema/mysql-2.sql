-- Units that operations use. The columns say what a claim is charged for, until
-- Run has added it to sallyport_used.

ALTER TABLE sallyport_idem
	ADD COLUMN account VARBINARY(512), -- NULL: nothing is charged, or it is added up
	ADD COLUMN began   BIGINT, -- when it was claimed
	ADD COLUMN units   BIGINT;

CREATE INDEX sallyport_idem_account ON sallyport_idem (account);

-- What each account has used on a day, with those within it. In place of an account
-- '' has: on day 0 the last number of sallyport_usage, whose row is the lock of who
-- adds up, and on day 1 that charges are kept.
CREATE TABLE sallyport_used (
	account        VARBINARY(512) NOT NULL,
	day            INTEGER NOT NULL, -- since 1970, in UTC
	units          BIGINT NOT NULL,
	PRIMARY KEY (account, day)
) ENGINE=InnoDB;

INSERT INTO sallyport_used (account, day, units) VALUES ('', 0, 0);

-- Charges that were not acknowledged.
CREATE TABLE sallyport_usage (
	number         BIGINT NOT NULL PRIMARY KEY,
	id             BINARY(16) NOT NULL, -- of the operation
	account        VARBINARY(512) NOT NULL,
	units          BIGINT NOT NULL,
	began          BIGINT NOT NULL,
	uncertain      TINYINT NOT NULL -- 1: the outcome is not known
) ENGINE=InnoDB;
