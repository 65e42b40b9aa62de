-- Version 5 of what keysql keeps in MySQL and MariaDB: keys that are children of
-- others.
--
-- A server of an earlier version can go on: it refuses their tokens. Nothing
-- changes the parent of a key. Lists are of the keys without a parent, or of one
-- parent.

ALTER TABLE sallyport_keys
	ADD COLUMN parent VARBINARY(512) NOT NULL DEFAULT '', -- id of a key; '' for none
	ADD COLUMN child_ends BIGINT GENERATED ALWAYS AS (IF(LENGTH(parent) > 0, expires_at, NULL)) VIRTUAL,
	DROP KEY sallyport_keys_list,
	ADD KEY sallyport_keys_list (organization, parent, created_at, id),
	ADD KEY sallyport_keys_children (parent, expires_at),
	ADD KEY sallyport_keys_ends (child_ends);
