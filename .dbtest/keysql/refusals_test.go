package keysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func refused(k *keystore.Key, at time.Time, code, route string) keystore.Use {
	return keystore.Use{Organization: k.Organization, ID: k.ID,
		Refused: keystore.Refusal{At: at, Code: code, Route: route}}
}

// A refusal that cannot be stored is left out, and the rest of its batch is
// written.
func TestOddRefusals(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		store := d.store(t)
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

// Refusals are in the row of the key, which an erasure leaves for an hour.
func TestEraseRemovesRefusals(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		store := d.store(t)
		k := inserted(t, store, "acme", 1)[0]
		addUses(t, store, []keystore.Use{refused(k, time.Now(), "not_found", "")})
		erase(t, store, "acme")
		if left, kept := count(t, d.open(t), "sallyport_keys"),
			count(t, d.open(t), "sallyport_keys WHERE refusals IS NOT NULL"); left != 1 || kept != 0 {
			t.Errorf("after Erase there are %d keys, %d of them with refusals, want 1 without", left, kept)
		}
	})
}
