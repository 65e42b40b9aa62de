ALTER TABLE sallyport_keys ADD COLUMN refusals LONGBLOB; -- the last of each code, a JSON object
