// The page .github/GUIDES.md shows parts of these examples, which need a
// database.
package guides_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// issue makes a key for an example.
func issue(issuer *issuing.Issuer, organization string, scopes ...scope.Name) string {
	secret, _, err := issuer.Issue(context.Background(), keystore.Key{
		Organization: organization, Name: "example", Environment: keystore.Production, Scopes: scopes,
	})
	if err != nil {
		panic(err)
	}
	return secret.Reveal()
}

// send sends a request with a key to a handler.
func send(h http.Handler, method, path, key, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// openSQLite opens a new database, which remove deletes.
func openSQLite() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(dir, "parcels.db")
	db, err = sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}
