-- Version 7 of what keysql keeps in SQLite: keys that are children of others.
--
-- A server of an earlier version can go on: it refuses their tokens. Nothing
-- changes the parent of a key.

ALTER TABLE sallyport_keys ADD COLUMN parent TEXT NOT NULL DEFAULT ''; -- id of a key; '' for none

-- Lists are of the keys without a parent, or of one parent.
DROP INDEX sallyport_keys_list;

CREATE INDEX sallyport_keys_list ON sallyport_keys (organization, parent, created_at, id);

CREATE INDEX sallyport_keys_children ON sallyport_keys (parent, expires_at) WHERE parent <> '';

CREATE INDEX sallyport_keys_ends ON sallyport_keys (expires_at) WHERE parent <> '';
