-- What keysql keeps in Postgres, 13 or later.
--
-- Texts are compared and sorted byte for byte, whatever the database's locale.
-- A day is the number of days since 1970-01-01, in UTC.

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
	rotated_from text COLLATE "C" NOT NULL, -- of a child: itself, so that nothing can rotate it
	version      bigint NOT NULL,
	changed      bigint DEFAULT pg_current_xact_id()::text::bigint, -- the transaction that changed the key last
	legacy       text COLLATE "C" NOT NULL DEFAULT '',   -- name of the token's shape; '' for the present one
	attributes   text COLLATE "C" NOT NULL DEFAULT '{}', -- a JSON object of texts
	networks     text COLLATE "C" NOT NULL DEFAULT '[]', -- a JSON array such as ["192.0.2.0/24"]; empty: any

	last_used_from text COLLATE "C", -- the client's address at last_used_at
	observed_since timestamptz,      -- since when scopes and days have the key's uses

	parent text COLLATE "C" NOT NULL DEFAULT '', -- id of a key; '' for none; never changes
	root   text COLLATE "C" NOT NULL DEFAULT ''  -- id of the last ancestor; '' for none
) WITH (fillfactor = 85); -- last_used_at is rewritten all the time, best within its page

CREATE UNIQUE INDEX sallyport_keys_issue ON sallyport_keys (organization, created_by, issue_token)
	WHERE issue_token <> '';

CREATE UNIQUE INDEX sallyport_keys_successor ON sallyport_keys (organization, rotated_from) -- a key has one successor
	WHERE rotated_from <> '';

CREATE INDEX sallyport_keys_feed ON sallyport_keys (changed, digest) WHERE changed IS NOT NULL;

CREATE INDEX sallyport_keys_list ON sallyport_keys (organization, created_at, id);

CREATE INDEX sallyport_keys_children ON sallyport_keys (parent, organization, created_at, id);

CREATE INDEX sallyport_keys_live ON sallyport_keys (parent, revoked_at, expires_at) WHERE parent <> '';

CREATE INDEX sallyport_keys_below ON sallyport_keys (root, revoked_at, expires_at) WHERE root <> '';

CREATE INDEX sallyport_keys_ends ON sallyport_keys (least(expires_at, revoked_at)) WHERE parent <> '';

-- Without the parent: Postgres leaves the condition of the index out of a scan,
-- which would begin at no expiry then.
CREATE INDEX sallyport_keys_expires ON sallyport_keys (expires_at, id) WHERE parent = '';

CREATE INDEX sallyport_keys_count ON sallyport_keys (organization, expires_at) WHERE parent = '' AND revoked_at IS NULL;

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
	BEFORE UPDATE OF organization, environment, name, scopes, expires_at, revoked_at, suspended, legacy, attributes, networks ON sallyport_keys
	FOR EACH ROW EXECUTE FUNCTION sallyport_keys_change();

-- How keys are used.
CREATE TABLE sallyport_keys_scopes (
	id    text COLLATE "C" NOT NULL REFERENCES sallyport_keys ON DELETE CASCADE,
	scope text COLLATE "C" NOT NULL,
	day   integer NOT NULL, -- the last on which a request needed the scope
	PRIMARY KEY (id, scope)
);

CREATE TABLE sallyport_keys_days (
	id       text COLLATE "C" NOT NULL REFERENCES sallyport_keys ON DELETE CASCADE,
	day      integer NOT NULL,
	requests bigint NOT NULL,
	PRIMARY KEY (id, day)
) WITH (fillfactor = 85); -- requests is rewritten all the time, best within its page

CREATE INDEX sallyport_keys_days_old ON sallyport_keys_days (day);

CREATE TABLE sallyport_keys_audit (
	id           text COLLATE "C" PRIMARY KEY, -- sorts by time
	organization text COLLATE "C" NOT NULL,
	key_id       text COLLATE "C" NOT NULL,
	at           timestamptz NOT NULL,
	act          text COLLATE "C" NOT NULL, -- issue, rotate, revoke, suspend, resume, rename, edit or import
	actor        text COLLATE "C" NOT NULL,
	reason       text COLLATE "C" NOT NULL,
	changes      text COLLATE "C" NOT NULL -- a JSON array of objects: field, before, after
);

CREATE INDEX sallyport_keys_audit_list ON sallyport_keys_audit (organization, id);

CREATE INDEX sallyport_keys_audit_key ON sallyport_keys_audit (organization, key_id, id);

CREATE INDEX sallyport_keys_audit_at ON sallyport_keys_audit (at);
