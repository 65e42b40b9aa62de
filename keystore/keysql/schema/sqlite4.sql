-- Version 4 of what keysql keeps in SQLite: new keys are in the feed, so that a
-- cache which has looked one up too early learns of it.
--
-- A trigger, so that it has the keys of a server of an earlier version too.

CREATE TRIGGER sallyport_keys_insert AFTER INSERT ON sallyport_keys
BEGIN
	UPDATE sallyport_keys_changes SET number = number + 1;
	UPDATE sallyport_keys SET changed = (SELECT number FROM sallyport_keys_changes) WHERE id = NEW.id;
END;
