-- Version 2 of what keysql keeps in MySQL and MariaDB: new keys are in the
-- feed, so that a cache which has looked one up too early learns of it.
--
-- A trigger, so that it has the keys of a server of an earlier version too. The
-- key is numbered before it is there, as a change is: readers never see a key
-- without its number.

CREATE TRIGGER sallyport_keys_insert BEFORE INSERT ON sallyport_keys FOR EACH ROW
BEGIN
	UPDATE sallyport_keys_changes SET number = number + 1;
	SET NEW.changed = (SELECT number FROM sallyport_keys_changes);
END;
