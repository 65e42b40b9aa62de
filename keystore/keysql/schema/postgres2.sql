-- Version 2 of what keysql keeps in Postgres: a key has one successor.
--
-- Of several successors that an earlier version let in the oldest stays one. The
-- others go on working, as keys that replace none.

UPDATE sallyport_keys SET rotated_from = ''
WHERE rotated_from <> '' AND EXISTS (
	SELECT 1 FROM sallyport_keys AS older
	WHERE older.organization = sallyport_keys.organization AND older.rotated_from = sallyport_keys.rotated_from
	AND (older.created_at, older.id) < (sallyport_keys.created_at, sallyport_keys.id)
);

CREATE UNIQUE INDEX sallyport_keys_successor ON sallyport_keys (organization, rotated_from)
	WHERE rotated_from <> '';
