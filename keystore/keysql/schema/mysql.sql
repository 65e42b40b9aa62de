-- Version 1 of what keysql keeps in MySQL, 8.0.29 or later, and MariaDB, 10.6
-- or later.
--
-- Texts are bytes, which no collation folds or pads and no connection's
-- character set changes. Times are microseconds since 1970 in UTC. Migrate runs
-- one statement at a time: each ends with a semicolon and an empty line.

CREATE TABLE sallyport_keys (
	id           VARBINARY(512) NOT NULL PRIMARY KEY,
	digest       BINARY(32) NOT NULL UNIQUE, -- SHA-256 of the token
	organization VARBINARY(512) NOT NULL,
	environment  VARBINARY(512) NOT NULL, -- production or sandbox
	name         LONGBLOB NOT NULL,
	hint         VARBINARY(512) NOT NULL, -- the last four characters of the token
	scopes       LONGBLOB NOT NULL, -- a JSON array of names
	created_at   BIGINT NOT NULL,
	created_by   VARBINARY(512) NOT NULL,
	expires_at   BIGINT,
	revoked_at   BIGINT,
	suspended    BOOLEAN NOT NULL,
	last_used_at BIGINT,
	issue_token  VARBINARY(512) NOT NULL,
	rotated_from VARBINARY(512) NOT NULL,
	version      BIGINT NOT NULL,
	changed      BIGINT, -- the number of the key's last change
	legacy       VARBINARY(512) NOT NULL DEFAULT '', -- name of the token's shape; '' for the present one
	attributes   LONGBLOB NOT NULL DEFAULT ('{}'), -- a JSON object of texts
	networks     LONGBLOB NOT NULL DEFAULT ('[]'), -- a JSON array such as ["192.0.2.0/24"]; empty: any

	-- NULL for the empty text, of which a unique index takes any number.
	issued       VARBINARY(512) GENERATED ALWAYS AS (IF(LENGTH(issue_token) > 0, issue_token, NULL)) STORED,
	replaces     VARBINARY(512) GENERATED ALWAYS AS (IF(LENGTH(rotated_from) > 0, rotated_from, NULL)) STORED,

	KEY sallyport_keys_list (organization, created_at, id),
	UNIQUE KEY sallyport_keys_issue (organization, created_by, issued),
	UNIQUE KEY sallyport_keys_successor (organization, replaces), -- a key has one successor
	KEY sallyport_keys_feed (changed, digest)
) ENGINE=InnoDB;

-- The number of changes so far, in one row. A transaction that changes keys
-- holds it to its end, so numbers become visible in their order.
CREATE TABLE sallyport_keys_changes (
	id     TINYINT NOT NULL PRIMARY KEY,
	number BIGINT NOT NULL
) ENGINE=InnoDB;

INSERT INTO sallyport_keys_changes (id, number) VALUES (1, 0);

-- A trigger, so that a key which somebody revokes by hand reaches the caches
-- too, and is not brought back by a program that has read it before.
CREATE TRIGGER sallyport_keys_change BEFORE UPDATE ON sallyport_keys FOR EACH ROW
BEGIN
	IF NEW.version <> OLD.version OR NOT (
		NEW.organization <=> OLD.organization AND NEW.environment <=> OLD.environment AND
		NEW.name <=> OLD.name AND NEW.scopes <=> OLD.scopes AND
		NEW.expires_at <=> OLD.expires_at AND NEW.revoked_at <=> OLD.revoked_at AND
		NEW.suspended <=> OLD.suspended AND NEW.legacy <=> OLD.legacy AND
		NEW.attributes <=> OLD.attributes AND NEW.networks <=> OLD.networks
	) THEN
		UPDATE sallyport_keys_changes SET number = number + 1;
		SET NEW.version = OLD.version + 1, NEW.changed = (SELECT number FROM sallyport_keys_changes);
	END IF;
END;
