-- Version 5 of what keysql keeps in MySQL and MariaDB: keys that are children of
-- others.
--
-- A server of an earlier version can go on: it refuses their tokens, and
-- cannot rotate them, because a child stands in rotated_from as its own
-- successor. Nothing changes the parent of a key. Lists are of the keys without
-- a parent, or of one parent; those of an earlier version keep their index.

ALTER TABLE sallyport_keys
	ADD COLUMN parent VARBINARY(512) NOT NULL DEFAULT '', -- id of a key; '' for none
	ADD COLUMN root VARBINARY(512) NOT NULL DEFAULT '', -- id of the last ancestor, which has no parent; '' for none
	ADD COLUMN child_ends BIGINT GENERATED ALWAYS AS (IF(LENGTH(parent) > 0,
		LEAST(COALESCE(expires_at, revoked_at), COALESCE(revoked_at, expires_at)), NULL)) VIRTUAL,
	ADD KEY sallyport_keys_children (parent, organization, created_at, id),
	ADD KEY sallyport_keys_live (parent, revoked_at, expires_at),
	ADD KEY sallyport_keys_below (root, revoked_at, expires_at),
	ADD KEY sallyport_keys_ends (child_ends);
