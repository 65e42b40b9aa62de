-- Version 1 of what keysql keeps in Postgres, 13 or later.
--
-- Texts are compared and sorted byte for byte, whatever the database's locale.

CREATE TABLE sallyport_keys (
	id           text COLLATE "C" PRIMARY KEY,
	digest       bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32), -- SHA-256 of the token
	organization text COLLATE "C" NOT NULL,
	environment  text COLLATE "C" NOT NULL, -- production or sandbox
	name         text COLLATE "C" NOT NULL,
	hint         text COLLATE "C" NOT NULL, -- the last four characters of the token
	scopes       text COLLATE "C" NOT NULL, -- a JSON array of names
	created_at   timestamptz NOT NULL,
	created_by   text COLLATE "C" NOT NULL,
	expires_at   timestamptz,
	revoked_at   timestamptz,
	suspended    boolean NOT NULL,
	last_used_at timestamptz,
	issue_token  text COLLATE "C" NOT NULL,
	rotated_from text COLLATE "C" NOT NULL,
	version      bigint NOT NULL,
	changed      bigint -- the transaction that changed the key last
) WITH (fillfactor = 85); -- last_used_at is rewritten all the time, best within its page

CREATE INDEX sallyport_keys_list ON sallyport_keys (organization, created_at, id);

CREATE UNIQUE INDEX sallyport_keys_issue ON sallyport_keys (organization, created_by, issue_token)
	WHERE issue_token <> '';

CREATE INDEX sallyport_keys_feed ON sallyport_keys (changed, digest) WHERE changed IS NOT NULL;

-- A trigger, so that a key which somebody revokes by hand reaches the caches
-- too, and is not brought back by a program that has read it before.
CREATE FUNCTION sallyport_keys_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.version := OLD.version + 1;
	NEW.changed := pg_current_xact_id()::text::bigint;
	RETURN NEW;
END
$$;

CREATE TRIGGER sallyport_keys_change
	BEFORE UPDATE OF organization, environment, name, scopes, expires_at, revoked_at, suspended ON sallyport_keys
	FOR EACH ROW EXECUTE FUNCTION sallyport_keys_change();
