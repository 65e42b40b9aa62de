-- Version 7 of what keysql keeps in MySQL and MariaDB: what lists the keys that
-- expire soon, and counts those of an organization, by an index.
--
-- A server of an earlier version can go on, and one of this version without it.

ALTER TABLE sallyport_keys
	ADD KEY sallyport_keys_expires (parent, expires_at),
	ADD KEY sallyport_keys_count (organization, parent, revoked_at, expires_at);
