package keysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

func refused(k *keystore.Key, at time.Time, code, route string) keystore.Use {
	return keystore.Use{Organization: k.Organization, ID: k.ID,
		Refused: keystore.Refusal{At: at, Code: code, Route: route}}
}

// A refusal that cannot be stored is left out, and the rest of its batch is
// written.
func TestOddRefusals(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		keys := inserted(t, store, "acme", 5)
		at := time.Date(1969, 7, 20, 20, 17, 40, 123456789, time.UTC)
		for i, row := range []struct {
			use  keystore.Use
			want string
		}{
			{refused(keys[0], at, "first", `</é'"\`), `[{1969-07-20 20:17:40.123456789 +0000 UTC first </é'"\}]`},
			{refused(keys[1], at, "nul \x00", ""), "[]"},
			{refused(keys[2], at, "no_text", "\xff"), "[]"},
			{refused(keys[3], at.AddDate(9000, 0, 0), "far_ahead", ""), "[]"},
			{refused(keys[4], at, "", "no code"), "[]"},
		} {
			addUses(t, store, []keystore.Use{row.use, observed(keys[i], at)})
			u, err := store.Usage(t.Context(), "acme", keys[i].ID)
			if err != nil || fmt.Sprint(u.Refusals) != row.want || len(u.Scopes) != 1 {
				t.Errorf("%q: Usage returned %+v, %v, want the refusals %s and the use", row.use.Refused, u, err, row.want)
			}
		}
	})
}
