-- Version 6 of what keysql keeps in MySQL and MariaDB: what counts, lists and
-- sweeps children by an index.
--
-- A child stands in rotated_from as its own successor, so that no server of an
-- earlier version can rotate it. Those servers can go on. The children that they
-- make have no root and count for no limit.

ALTER TABLE sallyport_keys
	ADD COLUMN root VARBINARY(512) NOT NULL DEFAULT '', -- id of the last ancestor; '' for none
	DROP KEY sallyport_keys_list,
	ADD KEY sallyport_keys_list (organization, created_at, id),
	DROP KEY sallyport_keys_children,
	ADD KEY sallyport_keys_children (parent, organization, created_at, id),
	ADD KEY sallyport_keys_live (parent, revoked_at, expires_at),
	ADD KEY sallyport_keys_below (root, revoked_at, expires_at),
	DROP KEY sallyport_keys_ends,
	MODIFY COLUMN child_ends BIGINT GENERATED ALWAYS AS (IF(LENGTH(parent) > 0,
		LEAST(COALESCE(expires_at, revoked_at), COALESCE(revoked_at, expires_at)), NULL)) VIRTUAL,
	ADD KEY sallyport_keys_ends (child_ends);
