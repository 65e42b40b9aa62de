-- Version 8 of what keysql keeps in SQLite: what counts, lists and sweeps
-- children by an index.
--
-- A child stands in rotated_from as its own successor, so that no server of an
-- earlier version can rotate it. Those servers can go on. The children that they
-- make have no root and count for no limit.

ALTER TABLE sallyport_keys ADD COLUMN root TEXT NOT NULL DEFAULT ''; -- id of the last ancestor; '' for none

DROP INDEX sallyport_keys_list;

CREATE INDEX sallyport_keys_list ON sallyport_keys (organization, created_at, id);

DROP INDEX sallyport_keys_children;

CREATE INDEX sallyport_keys_children ON sallyport_keys (parent, organization, created_at, id);

CREATE INDEX sallyport_keys_live ON sallyport_keys (parent, revoked_at, expires_at) WHERE parent <> '';

CREATE INDEX sallyport_keys_below ON sallyport_keys (root, revoked_at, expires_at) WHERE root <> '';

DROP INDEX sallyport_keys_ends;

CREATE INDEX sallyport_keys_ends ON sallyport_keys (ifnull(min(expires_at, revoked_at), ifnull(expires_at, revoked_at))) WHERE parent <> '';
