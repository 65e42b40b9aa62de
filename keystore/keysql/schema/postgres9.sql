-- Version 9 of what keysql keeps in Postgres: what lists the keys that
-- expire soon, and counts those of an organization, by an index.
--
-- A server of an earlier version can go on, and one of this version without it.

CREATE INDEX sallyport_keys_expires ON sallyport_keys (parent, expires_at, id) WHERE parent = '';

CREATE INDEX sallyport_keys_count ON sallyport_keys (organization, expires_at) WHERE parent = '' AND revoked_at IS NULL;
