package guides_test

import (
	"database/sql"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// asTenant gives the transaction of a request the role and the schema of its
// organization, until it ends.
func asTenant(r *http.Request) (*sql.Tx, error) {
	tx, _ := idemsql.Tx(r.Context())
	_, err := tx.ExecContext(r.Context(), "SELECT set_config('role', $1, true), set_config('search_path', $1, true)",
		"tenant_"+middleware.CallerFrom(r.Context()).Organization())
	return tx, err
}

// TestTenantBySchema: each organization has a schema and a role. Rows are in its
// schema, the reply is not, and the next request on the same connection has
// neither role nor schema of the one before, whether that failed or not.
func TestTenantBySchema(t *testing.T) {
	db := stdlib.OpenDB(*pgtest.Schema(t))
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(2) // one for joined requests
	replies := idemsql.Postgres(db, idemsql.Options{})
	if err := replies.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute := func(query string) {
		t.Helper()
		if _, err := db.Exec(query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	var home string
	if err := db.QueryRow("SELECT current_schema()").Scan(&home); err != nil {
		t.Fatal(err)
	}
	name := func(tenant string) string { return "tenant_" + home + tenant }
	for _, tenant := range []string{"a", "b"} {
		execute(strings.ReplaceAll(`CREATE ROLE NAME; CREATE SCHEMA NAME AUTHORIZATION NAME;
			CREATE TABLE NAME.parcels (target text NOT NULL); ALTER TABLE NAME.parcels OWNER TO NAME`, "NAME", name(tenant)))
		t.Cleanup(func() { execute(strings.ReplaceAll(`DROP SCHEMA NAME CASCADE; DROP ROLE NAME`, "NAME", name(tenant))) })
	}

	keys, issuer := issuing.InMemory(keystore.Service{})
	api := middleware.NewAPI(keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{
		Runner: idem.NewRunner(replies, idem.Options{Join: true}), Required: true}})
	api.HandleFunc("POST /api/v1/parcels", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			tx, err := asTenant(r)
			if err == nil {
				_, err = tx.ExecContext(r.Context(), "INSERT INTO parcels VALUES (nullif($1, ''))", r.FormValue("to"))
			}
			if err != nil {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 500, Code: "internal"})
				return
			}
			w.WriteHeader(http.StatusCreated)
		})

	for _, tt := range []struct {
		tenant, to, key, table string
		want                   int
	}{
		{"a", "Oslo", "1", "a", 201},
		{"a", "Oslo", "1", "a", 201}, // a repeat
		{"b", "Rome", "1", "b", 201},
		{"b", "", "2", "b", 500},
		{"a", "Bonn", "3", "a", 201},
		{"c", "Bern", "1", "", 500}, // it has no role
		{"a", "Kiel", "4", "a", 201},
	} {
		key := issue(issuer, home+tt.tenant, scope.TasksWrite)
		res := send(api, "POST", "/api/v1/parcels?to="+tt.to, key, "", "Idempotency-Key", tt.key)
		if res.Code != tt.want {
			t.Errorf("%s to %q: got %d %s, want %d", tt.tenant, tt.to, res.Code, res.Body, tt.want)
		}
		var role, path string
		if err := db.QueryRow("SELECT current_user, current_schema()").Scan(&role, &path); err != nil ||
			path != home || strings.HasPrefix(role, "tenant_") {
			t.Errorf("after %s to %q a connection has the role %s and the schema %s: %v", tt.tenant, tt.to, role, path, err)
		}
	}
	for tenant, want := range map[string]string{"a": "Oslo Bonn Kiel", "b": "Rome"} {
		var got string
		if err := db.QueryRow("SELECT string_agg(target, ' ') FROM " + name(tenant) + ".parcels").Scan(&got); err != nil ||
			got != want {
			t.Errorf("%s has %q, want %q: %v", tenant, got, want, err)
		}
	}
}
