-- Version 7 of what keysql keeps in Postgres: keys that are children of others.
--
-- A server of an earlier version can go on: it refuses their tokens, and
-- cannot rotate them, because a child stands in rotated_from as its own
-- successor. Nothing changes the parent of a key.

ALTER TABLE sallyport_keys
	ADD COLUMN parent text COLLATE "C" NOT NULL DEFAULT '', -- id of a key; '' for none
	ADD COLUMN root   text COLLATE "C" NOT NULL DEFAULT ''; -- id of the last ancestor, which has no parent; '' for none

-- Lists are of the keys without a parent, or of one parent. Those of an earlier
-- version keep their index.
CREATE INDEX sallyport_keys_children ON sallyport_keys (parent, organization, created_at, id);

CREATE INDEX sallyport_keys_live ON sallyport_keys (parent, revoked_at, expires_at) WHERE parent <> '';

CREATE INDEX sallyport_keys_below ON sallyport_keys (root, revoked_at, expires_at) WHERE root <> '';

CREATE INDEX sallyport_keys_ends ON sallyport_keys (least(expires_at, revoked_at)) WHERE parent <> '';
