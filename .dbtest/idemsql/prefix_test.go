package idemsql_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// Two stores in one database do not see each other's claims, locks, replies or
// schema. Which prefixes are valid is tested beside the code of keysql.
func TestPrefix(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		plain, other := d.on(db, idemsql.Options{}), d.on(db, idemsql.Options{Prefix: strings.Repeat("x", 40)})
		c := claim("key")
		if _, err := other.Begin(t.Context(), c); err == nil {
			t.Error("Begin without the table: got no error")
		}
		mustMigrate(t, "another prefix", other)
		mustMigrate(t, "another prefix, again", other)
		for _, step := range other.Schema() {
			if strings.Contains(step, "sallyport_") {
				t.Errorf("the schema still has the prefix sallyport_:\n%s", step)
			}
		}

		_, j := join(t, plain, c, idem.Claimed)
		if d.name != "sqlite" { // which has one writer
			// Not fatal: the end of the test would wait for the open
			// transaction.
			if r, k, err := other.Join(t.Context(), again(c), 0); k == nil {
				t.Errorf("Join: got %v, error %v, want claimed", r.State, err)
			} else if err := k.Settle(t.Context(), outcomeFree); err != nil {
				t.Error(err)
			}
		}
		if err := j.Settle(t.Context(), finished("of the first")); err != nil {
			t.Error(err)
		}
		_, j = join(t, other, again(c), idem.Claimed)
		if err := j.Settle(t.Context(), refusal); err != nil {
			t.Error(err)
		}
		for store, want := range map[store]string{plain: "of the first", other: "refused"} {
			if r := begin(t, store, again(c), idem.Done); string(r.Payload) != want {
				t.Errorf("got the payload %q, want %q", r.Payload, want)
			}
		}

		leased := claim("leased")
		begin(t, other, leased, idem.Claimed)
		begin(t, plain, again(leased), idem.Claimed)
		if err := other.Extend(t.Context(), leased.Key, leased.Token, leased.Lease); err != nil {
			t.Error(err)
		}
		if err := other.Settle(t.Context(), leased.Key, leased.Token, finished("answer")); err != nil {
			t.Error(err)
		}
		begin(t, plain, again(leased), idem.InProgress)
		freed := claim("freed")
		begin(t, other, freed, idem.Claimed)
		if err := other.Settle(t.Context(), freed.Key, freed.Token, outcomeFree); err != nil {
			t.Error(err)
		}
		d.advance(t, db, 48*3600e9) // of the default prefix
		theirs := "SELECT count(*) FROM " + strings.Repeat("x", 40) + "idem"
		kept := count(t, db, theirs)
		swept(t, other)
		mustCount(t, db, theirs, kept)
		sweep(t, plain, db, 2)
	})
}
