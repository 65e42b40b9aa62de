ALTER TABLE sallyport_keys ADD COLUMN refusals jsonb; -- the last of each code, a JSON object
