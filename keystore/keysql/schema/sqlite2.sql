ALTER TABLE sallyport_keys ADD COLUMN refusals TEXT; -- the last of each code, a JSON object
