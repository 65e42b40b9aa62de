package guides_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// notify tells of each key that ends within two weeks, once. A program calls it
// once a day, and again after an error or a crash.
func notify(
	ctx context.Context, db *sql.DB, issuer *issuing.Issuer, tell func(id string, k *keystore.Key) error,
) error {
	query := issuing.Query{AllOrganizations: true, Status: keystore.Active,
		ExpiresBefore: time.Now().AddDate(0, 0, 14)}
	for {
		page, err := issuer.Keys(ctx, "", query)
		if err != nil || len(page.Keys) == 0 {
			return err
		}
		for _, k := range page.Keys {
			id := k.ID + "/" + k.ExpiresAt.Format(time.DateOnly)
			var told bool
			err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM notices WHERE id = $1)", id).Scan(&told)
			if told || !k.RevokedAt.IsZero() { // or it is replaced already
				continue
			}
			if err == nil {
				err = tell(id, k)
			}
			if err == nil {
				_, err = db.ExecContext(ctx, "INSERT INTO notices (id) VALUES ($1)", id)
			}
			if err != nil {
				return err
			}
		}
		query.After = page.Keys[len(page.Keys)-1]
	}
}

// A crash behind any notice, before it is noted, makes no second one.
func TestNotices(t *testing.T) {
	db, remove := openSQLite()
	defer remove()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE notices (id text PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	keys, issuer := issuing.InMemory(keystore.Service{})
	var got, want []string
	api := middleware.NewAPI(keys, middleware.Options{})
	api.HandleFunc("POST /api/v1/notices/{organization}", middleware.Require(scope.WebhooksWrite),
		func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.PathValue("organization")) })
	sender := issue(issuer, "ours", scope.WebhooksWrite)
	for _, organization := range []string{"a", "b", "c", "d"} {
		for _, days := range []int{3, 20} {
			_, k, err := issuer.Issue(t.Context(), keystore.Key{Organization: organization,
				Environment: keystore.Production, ExpiresAt: time.Now().AddDate(0, 0, days)})
			if err != nil {
				t.Fatal(err)
			}
			if organization == "d" { // was rotated
				if _, _, err := issuer.Rotate(t.Context(), issuing.Rotation{Organization: "d", ID: k.ID,
					Overlap: time.Hour, NeverExpires: true}); err != nil {
					t.Fatal(err)
				}
			} else if days == 3 {
				want = append(want, organization)
			}
		}
	}
	crash := errors.New("killed")
	for crashes := range 8 {
		told := 0
		err := notify(t.Context(), db, issuer, func(id string, k *keystore.Key) error {
			if w := send(api, "POST", "/api/v1/notices/"+k.Organization, sender, "", "Idempotency-Key", id); w.Code != 200 {
				return errors.New(w.Body.String())
			}
			if told++; told == 1 && crashes%2 == 0 {
				return crash
			}
			return nil
		})
		if err != nil && !errors.Is(err, crash) {
			t.Fatal(err)
		}
		if crashes == 7 && told > 0 {
			t.Errorf("%d notices that are noted are sent again", told)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the notices are of %q, want %q", got, want)
	}
}
