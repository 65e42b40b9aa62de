-- What keysql keeps in MySQL, 8.0.29 or later, and MariaDB, 10.6 or later.
--
-- Texts are bytes, which no collation folds or pads and no connection's
-- character set changes. Times are microseconds since 1970 in UTC. A day is the
-- number of days since 1970-01-01, in UTC. Migrate runs one statement at a time:
-- each ends with a semicolon and an empty line.

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
	rotated_from VARBINARY(512) NOT NULL, -- of a child: itself, so that nothing can rotate it
	version      BIGINT NOT NULL,
	changed      BIGINT, -- the number of the key's last change
	legacy       VARBINARY(512) NOT NULL DEFAULT '', -- name of the token's shape; '' for the present one
	attributes   LONGBLOB NOT NULL DEFAULT ('{}'), -- a JSON object of texts
	networks     LONGBLOB NOT NULL DEFAULT ('[]'), -- a JSON array such as ["192.0.2.0/24"]; empty: any

	-- NULL for the empty text, of which a unique index takes any number.
	issued       VARBINARY(512) GENERATED ALWAYS AS (IF(LENGTH(issue_token) > 0, issue_token, NULL)) STORED,
	replaces     VARBINARY(512) GENERATED ALWAYS AS (IF(LENGTH(rotated_from) > 0, rotated_from, NULL)) STORED,

	last_used_from VARBINARY(64), -- the client's address at last_used_at
	observed_since BIGINT, -- since when scopes and days have the key's uses

	parent     VARBINARY(512) NOT NULL DEFAULT '', -- id of a key; '' for none; never changes
	child_ends BIGINT GENERATED ALWAYS AS (IF(LENGTH(parent) > 0,
		LEAST(COALESCE(expires_at, revoked_at), COALESCE(revoked_at, expires_at)), NULL)) VIRTUAL,
	root       VARBINARY(512) NOT NULL DEFAULT '', -- id of the last ancestor; '' for none

	UNIQUE KEY sallyport_keys_issue (organization, created_by, issued),
	UNIQUE KEY sallyport_keys_successor (organization, replaces), -- a key has one successor
	KEY sallyport_keys_feed (changed, digest),
	KEY sallyport_keys_list (organization, created_at, id),
	KEY sallyport_keys_children (parent, organization, created_at, id),
	KEY sallyport_keys_live (parent, revoked_at, expires_at),
	KEY sallyport_keys_below (root, revoked_at, expires_at),
	KEY sallyport_keys_ends (child_ends),
	KEY sallyport_keys_expires (parent, expires_at),
	KEY sallyport_keys_count (organization, parent, revoked_at, expires_at)
) ENGINE=InnoDB;

-- The number of changes so far, in one row. A transaction that changes keys
-- holds it to its end, so numbers become visible in their order.
CREATE TABLE sallyport_keys_changes (
	id     TINYINT NOT NULL PRIMARY KEY,
	number BIGINT NOT NULL
) ENGINE=InnoDB;

INSERT INTO sallyport_keys_changes (id, number) VALUES (1, 0);

-- Triggers, so that a key which somebody inserts or revokes by hand reaches the
-- caches too, and is not brought back by a program that has read it before. A
-- key is numbered before it is there, as a change is: readers never see a key
-- without its number.
CREATE TRIGGER sallyport_keys_insert BEFORE INSERT ON sallyport_keys FOR EACH ROW
BEGIN
	UPDATE sallyport_keys_changes SET number = number + 1;
	SET NEW.changed = (SELECT number FROM sallyport_keys_changes);
END;

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

-- How keys are used.
CREATE TABLE sallyport_keys_scopes (
	id    VARBINARY(512) NOT NULL,
	scope VARBINARY(512) NOT NULL,
	day   INTEGER NOT NULL, -- the last on which a request needed the scope
	PRIMARY KEY (id, scope),
	FOREIGN KEY (id) REFERENCES sallyport_keys (id) ON DELETE CASCADE
) ENGINE=InnoDB;

CREATE TABLE sallyport_keys_days (
	id       VARBINARY(512) NOT NULL,
	day      INTEGER NOT NULL,
	requests BIGINT NOT NULL,
	PRIMARY KEY (id, day),
	KEY sallyport_keys_days_old (day),
	FOREIGN KEY (id) REFERENCES sallyport_keys (id) ON DELETE CASCADE
) ENGINE=InnoDB;

CREATE TABLE sallyport_keys_audit (
	id           VARBINARY(512) NOT NULL PRIMARY KEY, -- sorts by time
	organization VARBINARY(512) NOT NULL,
	key_id       VARBINARY(512) NOT NULL,
	at           BIGINT NOT NULL,
	act          VARBINARY(512) NOT NULL, -- issue, rotate, revoke, suspend, resume, rename, edit or import
	actor        VARBINARY(512) NOT NULL,
	reason       VARBINARY(512) NOT NULL,
	changes      LONGBLOB NOT NULL, -- a JSON array of objects: field, before, after

	KEY sallyport_keys_audit_list (organization, id),
	KEY sallyport_keys_audit_key (organization, key_id, id),
	KEY sallyport_keys_audit_at (at)
) ENGINE=InnoDB;
