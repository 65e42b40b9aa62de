package idemsql_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// A sessionCase is a handler that does something to its transaction or to the
// session, overlooks what fails, and answers. first and repeat are status, code
// and X-Should-Retry of the answers to one key.
type sessionCase struct {
	name string
	// Statements, and tx.COMMIT and tx.ROLLBACK for methods. The table is in {own},
	// {tenant} is another schema, and {role} has no right on the table.
	does   string
	heeds  bool // a statement that fails, by 422
	status int  // of the handler; 0 is 201
	first  string
	repeat string       // "" is a replay
	runs   int          // of both
	rows   int          // that both have kept
	says   string       // what the log has; nothing is logged where it is ""
	pgx    *sessionCase // what becomes of it with idempgx, if that knows more
}

const (
	kept     = "INSERT INTO {own}.tasks (id, title) VALUES (gen_random_uuid(), 'kept')"
	made     = "CREATE TABLE {tenant}.made (n integer); DROP TABLE {tenant}.made"
	unique   = "INSERT INTO {tenant}.things VALUES ('taken')"
	broken   = "500 internal false"
	violated = "409 constraint_violated false"
)

// A handler that ends its transaction, and answers as if it had not.
var (
	committedByHandler = sessionCase{first: "503 idempotency_commit_unknown true",
		repeat: "409 idempotency_in_progress true", runs: 1, rows: 1, says: "a handler ended the transaction"}
	rolledBackByHandler = sessionCase{first: "503 idempotency_commit_unknown true",
		repeat: "503 idempotency_commit_unknown true", runs: 2, says: "a handler ended the transaction"}
)

// of is such a handler, with a status of its own unless it is 0.
func (c sessionCase) of(name, does string, status int) sessionCase {
	c.name, c.does, c.status = name, kept+"; "+does, status
	return c
}

var postgresSessions = []sessionCase{
	{name: "a schema for each tenant", does: "SET LOCAL search_path TO {tenant}; " + kept, first: "201", runs: 1, rows: 1},
	{name: "no schema", does: "SET LOCAL search_path TO ''; " + kept, first: "201", runs: 1, rows: 1},
	{name: "a role", does: "SET LOCAL ROLE {role}; " + kept, first: "201", runs: 1, rows: 1},
	{name: "a role and a schema", does: "SET LOCAL ROLE {role}; SET LOCAL search_path TO {tenant}; " + kept,
		first: "201", runs: 1, rows: 1},
	{name: "a role of the session", does: "SET ROLE {role}; " + kept, first: "201", runs: 1, rows: 1},
	{name: "a role, refused", does: "SET LOCAL ROLE {role}; " + kept + "; DELETE FROM {own}.sallyport_idem", heeds: true,
		first: "422", runs: 1},
	{name: "another user", does: "SET SESSION AUTHORIZATION {role}; " + kept, first: broken, repeat: broken, runs: 2,
		says: "42501"},
	{name: "read only", does: kept + "; SET TRANSACTION READ ONLY", first: broken, repeat: broken, runs: 2, says: "25006"},
	{name: "an isolation", does: kept + "; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", first: broken, repeat: broken,
		runs: 2, says: "25P02"},
	{name: "a failed statement", does: kept + "; SELECT 1/0", first: broken, repeat: broken, runs: 2, says: "25P02"},
	{name: "a failed statement, heeded", does: kept + "; SELECT 1/0", heeds: true, first: "422", runs: 1},
	{name: "a savepoint", does: "SAVEPOINT a; SELECT 1/0; ROLLBACK TO a; " + kept, first: "201", runs: 1, rows: 1},
	{name: "time limits", does: "SET LOCAL statement_timeout = '1min'; SET LOCAL lock_timeout = 1; " + kept, first: "201",
		runs: 1, rows: 1},
	{name: "a time limit that passes", does: kept + "; SET LOCAL statement_timeout = 20; SELECT pg_sleep(60)",
		first: broken, repeat: broken, runs: 2, says: "25P02"},
	{name: "a deferred trigger that fails", does: kept + "; INSERT INTO {tenant}.checked VALUES (0)", first: broken,
		repeat: broken, runs: 2, says: "22012"},
	{name: "a deferred constraint", does: kept + "; " + unique, first: violated, repeat: violated, runs: 2, says: "23505"},
	{name: "a deferred trigger", does: kept + "; INSERT INTO {tenant}.checked VALUES (2)", first: violated,
		repeat: violated, runs: 2, says: "P0001"},
	{name: "a constraint that the handler checks", does: kept + "; " + unique + "; SET CONSTRAINTS ALL IMMEDIATE",
		heeds: true, first: "422", runs: 1},
	{name: "DDL", does: kept + "; " + made, first: "201", runs: 1, rows: 1},
	{name: "COMMIT", does: kept + "; COMMIT", first: "201", runs: 1, rows: 1, pgx: &committedByHandler},
	committedByHandler.of("COMMIT and refuse", "COMMIT", 422),
	{name: "COMMIT and fail", does: kept + "; COMMIT", status: 500, first: "500", repeat: committedByHandler.repeat,
		runs: 1, rows: 1, says: "ended its transaction itself"},
	committedByHandler.of("COMMIT, begin again and refuse", "COMMIT; BEGIN", 422),
	committedByHandler.of("COMMIT and begin to read", "COMMIT; BEGIN READ ONLY", 0),
	rolledBackByHandler.of("ROLLBACK", "ROLLBACK", 0),
	committedByHandler.of("Commit", "tx.COMMIT", 0),
	rolledBackByHandler.of("Rollback", "tx.ROLLBACK", 0),
	// The last: a pooler gives the connection to others.
	{name: "a schema of the session", does: "SET search_path TO {tenant}; " + kept, first: "201", runs: 1, rows: 1},
}

var mariaSessions = []sessionCase{
	{name: "another database", does: kept + "; USE {tenant}", first: "201", runs: 1, rows: 1},
	{name: "another database, and refuse", does: kept + "; USE {tenant}", status: 422, first: "422", runs: 1},
	{name: "another database, and fail", does: kept + "; USE {tenant}", status: 500, first: "500", repeat: "500", runs: 2},
	{name: "a failed statement", does: kept + "; INSERT INTO nowhere VALUES (1)", first: "201", runs: 1, rows: 1},
	{name: "a failed statement, heeded", does: kept + "; INSERT INTO nowhere VALUES (1)", heeds: true, first: "422",
		runs: 1},
	{name: "a savepoint", does: "SAVEPOINT a; " + kept + "; ROLLBACK TO a; " + kept, first: "201", runs: 1, rows: 1},
	{name: "DDL", does: kept + "; " + made, first: "201", runs: 1, rows: 1},
	committedByHandler.of("DDL and refuse", made, 422),
	{name: "DDL and fail", does: kept + "; " + made, status: 500, first: "500", repeat: committedByHandler.repeat,
		runs: 1, rows: 1, says: "ended its transaction itself"},
	committedByHandler.of("COMMIT and refuse", "COMMIT", 422),
	{name: "COMMIT and fail", does: kept + "; COMMIT", status: 500, first: "500", repeat: committedByHandler.repeat,
		runs: 1, rows: 1, says: "ended its transaction itself"},
	committedByHandler.of("COMMIT and begin to read", "START TRANSACTION READ ONLY", 0),
	rolledBackByHandler.of("ROLLBACK", "ROLLBACK", 0),
	committedByHandler.of("Commit", "tx.COMMIT", 0),
	rolledBackByHandler.of("Rollback", "tx.ROLLBACK", 0),
	// It commits, and the store cannot ask for its claim.
	{name: "LOCK TABLES", does: kept + "; LOCK TABLES {own}.tasks READ", first: committedByHandler.first,
		repeat: committedByHandler.repeat, runs: 1, rows: 1, says: "the database did not say"},
	{name: "LOCK TABLES and fail", does: kept + "; LOCK TABLES {own}.tasks READ", status: 500, first: "500",
		repeat: committedByHandler.repeat, runs: 1, rows: 1, says: "ended its transaction itself"},
}

var sqliteSessions = []sessionCase{
	{name: "a failed statement", does: kept + "; INSERT INTO nowhere VALUES (1)", first: "201", runs: 1, rows: 1},
	{name: "a failed statement, heeded", does: kept + "; INSERT INTO nowhere VALUES (1)", heeds: true, first: "422",
		runs: 1},
	{name: "a savepoint", does: "SAVEPOINT a; " + kept + "; ROLLBACK TO a; " + kept, first: "201", runs: 1, rows: 1},
	{name: "read only", does: kept + "; PRAGMA query_only = ON", first: broken, repeat: broken, runs: 2, says: "(8)"},
	{name: "a deferred constraint", does: kept + "; INSERT INTO parts VALUES ('missing')", first: violated,
		repeat: violated, runs: 2, says: "FOREIGN KEY"},
	{name: "DDL", does: kept + "; CREATE TABLE made (n integer)", first: "201", runs: 1, rows: 1},
	{name: "COMMIT", does: kept + "; COMMIT", first: committedByHandler.first, repeat: "201", runs: 1, rows: 1,
		says: "the database did not say"},
	committedByHandler.of("COMMIT and refuse", "COMMIT", 422),
	{name: "COMMIT and fail", does: kept + "; COMMIT", status: 500, first: "500", repeat: committedByHandler.repeat,
		runs: 1, rows: 1, says: "rolled back cleanly"},
	rolledBackByHandler.of("ROLLBACK", "ROLLBACK", 0),
	committedByHandler.of("Commit", "tx.COMMIT", 0),
	rolledBackByHandler.of("Rollback", "tx.ROLLBACK", 0),
}

// endTx ends the transaction of a request by its method, or where that refuses to
// by a statement.
func endTx(ctx context.Context, by string) {
	if tx, ok := idempgx.Tx(ctx); ok {
		tx.Exec(ctx, by)
	} else if tx, _ := idemsql.Tx(ctx); by == "COMMIT" {
		tx.Commit()
	} else {
		tx.Rollback()
	}
}

// What teams do to a session: the client is told whose fault it was and whether
// to repeat, and nothing of it stays on the connection.
func TestSessions(t *testing.T) {
	inBoth(t, func(t *testing.T, d database) {
		names := d.tenant(t)
		for _, pooled := range []bool{false, true} {
			through, name := d, "direct"
			if pooled {
				through.conf, name = pgtest.PgBouncer(t, d.conf), "PgBouncer"
				through = through.mode(pgx.QueryExecModeCacheDescribe)
			}
			for _, c := range postgresSessions {
				t.Run(name+", "+c.name, func(t *testing.T) { c.run(t, through, d, names, name) })
			}
		}
	})
	t.Run("mariadb", func(t *testing.T) {
		d, other := mariadb(t), mariadb(t)
		names := strings.NewReplacer("{own}", d.my.DBName, "{tenant}", other.my.DBName, "gen_random_uuid()", "uuid()")
		for _, c := range mariaSessions {
			t.Run(c.name, func(t *testing.T) { c.run(t, d, d, names, "") })
		}
	})
	t.Run("sqlite", func(t *testing.T) {
		d := sqliteFile(t)
		execute(t, d.open(t), "CREATE TABLE parts (task text REFERENCES tasks (id) DEFERRABLE INITIALLY DEFERRED)")
		names := strings.NewReplacer("{own}.", "", "gen_random_uuid()", "hex(randomblob(8))")
		for _, c := range sqliteSessions {
			t.Run(c.name, func(t *testing.T) { c.run(t, d, d, names, "") })
		}
	})
}

// tenant makes a schema and a role, and returns how the cases name them.
func (d database) tenant(t *testing.T) *strings.Replacer {
	own := d.conf.RuntimeParams["search_path"]
	names := strings.NewReplacer("{own}", own, "{tenant}", own+"_tenant", "{role}", own+"_role")
	admin := inPostgres(d.conf).open(t)
	execute(t, admin, names.Replace(`
		CREATE SCHEMA {tenant};
		CREATE TABLE {tenant}.things (name text UNIQUE DEFERRABLE INITIALLY DEFERRED);
		INSERT INTO {tenant}.things VALUES ('taken');
		CREATE TABLE {tenant}.checked (n integer);
		CREATE FUNCTION {tenant}.checks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF 1 / NEW.n = 0 THEN RAISE 'two is too many'; END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER checks AFTER INSERT ON {tenant}.checked DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION {tenant}.checks();
		CREATE ROLE {role};
		GRANT USAGE ON SCHEMA {own} TO {role};
		GRANT INSERT ON {own}.tasks TO {role}`))
	t.Cleanup(func() {
		gone := names.Replace("DROP SCHEMA {tenant} CASCADE; DROP OWNED BY {role}; DROP ROLE {role}")
		if _, err := admin.Exec(gone); err != nil {
			t.Error(err)
		}
	})
	return names
}

// run serves through a connection of one database, and looks by another.
func (c sessionCase) run(t *testing.T, through, d database, names *strings.Replacer, how string) {
	if does, name := c.does, c.name; d.pgx && c.pgx != nil {
		c = *c.pgx
		c.does, c.name = does, name
	}
	s := newServer(t, through.of(1), options{Options: idem.Options{Join: true, Wait: -1}},
		func(w http.ResponseWriter, r *http.Request, s *server) {
			tx, ok := inTx(r.Context())
			if !ok {
				t.Error("there is no transaction")
			}
			body, _ := io.ReadAll(r.Body)
			for statement := range strings.SplitSeq(names.Replace(string(body)), "; ") {
				if by, method := strings.CutPrefix(statement, "tx."); method {
					endTx(r.Context(), by)
				} else if statement == "" {
					continue
				} else if _, err := tx.ExecContext(r.Context(), statement); err != nil && c.heeds {
					w.WriteHeader(http.StatusUnprocessableEntity)
					return
				}
			}
			w.WriteHeader(max(c.status, http.StatusCreated))
		})
	post := func(key, body string) answer {
		if d.name == "sqlite" { // on the connection, which may be another one
			execute(t, s.db, "PRAGMA foreign_keys = ON")
		}
		return s.post(key, body)
	}
	look := d.open(t)
	if d.conf != nil {
		look = inPostgres(d.conf).open(t)
	}
	told := func(a answer) string {
		return strings.TrimSpace(fmt.Sprint(a.status, " ", a.code(), " ", a.header.Get("X-Should-Retry")))
	}
	before := count(t, look, "SELECT count(*) FROM tasks WHERE title = 'kept'")
	key := c.name + how
	first := post(key, c.does)
	if got := told(first); got != c.first {
		t.Errorf("first: got %s, want %s: %s", got, c.first, first.body)
	}
	if strings.Contains(first.body, "Nothing was done") {
		t.Errorf("the handler ran, and the client is told %s", first.body)
	}
	if repeat := post(key, c.does); c.repeat == "" {
		repeat.mustReplay(t, first)
	} else if got := told(repeat); got != c.repeat {
		t.Errorf("repeat: got %s, want %s: %s", got, c.repeat, repeat.body)
	}
	if got := int(s.runs.Load()); got != c.runs {
		t.Errorf("got %d runs, want %d", got, c.runs)
	}
	mustCount(t, look, "SELECT count(*) FROM tasks WHERE title = 'kept'", before+c.rows)
	if c.says != "" {
		s.log.mustSay(t, c.says)
		s.log.mustSay(t, `pattern="POST /api/v1/tasks"`)
	} else if s.log.lines() > 0 {
		t.Errorf("the log has\n%s", &s.log.text)
	}
	if c.repeat == committedByHandler.repeat { // until the lease of the claim has ended
		d.advance(t, look, 2*patience)
		post(key, c.does).mustBe(t, 409, "idempotency_outcome_unknown")
	}
	c.heeds, c.status = false, 0
	post(key+", next", "").mustBe(t, http.StatusCreated, "")
	mustBeIdle(t, s.db)
}

// The role that a hook of the pool has set is the one that saves the reply, and
// not that of the login.
func TestRoleOfThePool(t *testing.T) {
	inBoth(t, func(t *testing.T, d database) {
		names := d.tenant(t)
		admin := d.open(t)
		execute(t, admin, names.Replace(`
			GRANT SELECT, INSERT, UPDATE ON {own}.sallyport_idem TO {role};
			CREATE FUNCTION {own}.saved() RETURNS trigger LANGUAGE plpgsql SECURITY INVOKER AS $$ BEGIN
				NEW.payload := convert_to(current_user, 'UTF8'); RETURN NEW;
			END $$;
			CREATE TRIGGER saved BEFORE UPDATE ON {own}.sallyport_idem FOR EACH ROW EXECUTE FUNCTION {own}.saved()`))
		as := d.with("role", names.Replace("{role}"))
		s := newServer(t, as, joined, func(w http.ResponseWriter, r *http.Request, _ *server) {
			tx, _ := inTx(r.Context())
			if _, err := tx.ExecContext(r.Context(), "RESET ROLE; SET LOCAL ROLE pg_monitor"); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusCreated)
		})
		s.post("key", "").mustBe(t, 201, "")
		mustCount(t, admin, names.Replace("SELECT count(*) FROM sallyport_idem WHERE payload = '{role}'"), 1)
	})
}

// After many transactions that kept their role a store no longer looks. The
// first that changes it then is to be sent again, and from there on all stand.
func TestRoleAfterMany(t *testing.T) {
	inBoth(t, func(t *testing.T, d database) {
		role := d.tenant(t).Replace("{role}")
		s := newServer(t, d, joined, func(w http.ResponseWriter, r *http.Request, _ *server) {
			if body, _ := io.ReadAll(r.Body); len(body) > 0 {
				tx, _ := inTx(r.Context())
				if _, err := tx.ExecContext(r.Context(), string(body)); err != nil {
					t.Error(err)
				}
			}
			w.WriteHeader(http.StatusCreated)
		})
		for i := range 100 {
			s.post(fmt.Sprint(i), "").mustBe(t, 201, "")
		}
		s.post("key", "SET LOCAL ROLE "+role).mustBe(t, 503, "idempotency_store_unavailable")
		s.post("key", "SET LOCAL ROLE "+role).mustBe(t, 201, "")
		s.post("another", "SET LOCAL ROLE "+role).mustBe(t, 201, "")
	})
}
