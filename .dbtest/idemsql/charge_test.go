package idemsql_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// A creation that is charged costs doneUnits. Of one whose process died before its
// settlement only the units of the route are known.
const routeUnits, doneUnits = 5, 7

// charged are the options joined, for a route that is charged.
var charged = options{Options: joined.Options, charged: true}

func (o options) quota() *idem.Quota {
	if !o.charged {
		return nil
	}
	return &idem.Quota{Name: "monthly", Units: 1 << 40}
}

func (o options) route() middleware.RouteOptions {
	if !o.charged {
		return middleware.RouteOptions{}
	}
	return middleware.RouteOptions{Units: routeUnits}
}

func (o options) addUnits(ctx context.Context) error {
	if !o.charged {
		return nil
	}
	return middleware.AddUnits(ctx, doneUnits-routeUnits)
}

// counter is what an idem.Counter has beyond a Store.
type counter interface {
	Count(context.Context, idem.Account, int64) error
	Used(context.Context, idem.Account, time.Time) (int64, time.Time, error)
	Charges(context.Context, int) ([]idem.Charge, error)
	Acknowledge(context.Context, int64) error
	Uncertain(context.Context, int) ([]idem.Charge, error)
}

// addUp begins Run again and again, so that many more sums are under way when
// something is killed, and some are given up. A slow machine gets more time.
func addUp(ctx context.Context, s store) {
	for d := 100 * time.Millisecond; ctx.Err() == nil; d += d / 8 {
		some, cancel := context.WithTimeout(ctx, d)
		s.Run(some)
		cancel()
	}
}

// biller reads charges and acknowledges them, while servers are killed and after.
type biller struct {
	seen map[string]idem.Charge // by their ids
	last int64
}

func newBiller() *biller { return &biller{seen: make(map[string]idem.Charge)} }

// read reads all that there is. A charge comes after those that were read before,
// and stays as it is when it comes again.
func (b *biller) read(t testing.TB, s store) error {
	for {
		some, err := s.Charges(t.Context(), 100)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, c := range some {
			if was, again := b.seen[c.ID]; again && was != c || !again && c.Number <= b.last {
				t.Errorf("after charge %d comes %+v, which was %+v", b.last, c, was)
			}
			b.seen[c.ID], b.last = c, max(b.last, c.Number)
		}
		if err := s.Acknowledge(t.Context(), b.last); err != nil {
			return err
		}
	}
}

// mustMatch adds up, and compares all charges with the rows that handlers wrote and
// with what clients were told of each key in the end. A creation has a row and one
// charge, an unknown outcome one charge that is uncertain. What failed, and what
// was never told, is not charged.
func (b *biller) mustMatch(t testing.TB, d database, told map[string]answer) {
	t.Helper()
	db := d.open(t)
	s := d.on(db, keepsAll)
	folds(t, db, s)
	if err := b.read(t, s); err != nil {
		t.Error(err)
	}
	uncertain, err := s.Uncertain(t.Context(), 10000)
	if err != nil {
		t.Error(err)
	}
	keys := make(map[idem.Key]string)
	for key := range told {
		keys[idem.NewKey("org_1", "production", "", "", key)] = key
	}
	ids, made := make(map[string]string), make(map[string]int) // keys by charges, and how many rows they have
	found, err := db.QueryContext(t.Context(), `
		SELECT request_key, token, '', 0 FROM sallyport_idem
		UNION ALL SELECT NULL, NULL, coalesce(made_for, title), count(*) FROM tasks GROUP BY 3`)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var key, token []byte
		var title string
		var n int
		if err := found.Scan(&key, &token, &title, &n); err != nil {
			t.Fatal(err)
		}
		if made[title] = n; key != nil {
			id := sha256.Sum256(slices.Concat(key, token))
			ids[hex.EncodeToString(id[:16])] = keys[idem.Key(key)]
		}
	}
	delete(made, "")
	charges, sum := make(map[string][]idem.Charge), int64(0)
	var tenant idem.Account
	for _, c := range slices.Concat(slices.Collect(maps.Values(b.seen)), uncertain) {
		sum, tenant, c.Account = sum+c.Units, c.Account.Within()[2], "" // which has bytes that terminals do not show
		charges[ids[c.ID]] = append(charges[ids[c.ID]], c)
	}
	t.Logf("%d charges and %d that are uncertain of %d keys, %d of them with rows: %d units", len(b.seen), len(uncertain),
		len(told), len(made), sum)
	if used, _, err := s.Used(t.Context(), tenant, time.Time{}); used != sum || err != nil {
		t.Errorf("%d units are used, error %v; the charges are of %d", used, err, sum)
	}
	for key, a := range told {
		var c idem.Charge
		got := charges[key]
		if len(got) > 0 {
			c = got[0]
		}
		switch {
		case a.status == 201 && len(got) == 1 && c.Number > 0 && !c.Uncertain && c.Units == doneUnits && made[key] > 0:
		case a.code() == outcomeUnknown && len(got) == 1 && c.Number == 0 && (c.Units == routeUnits || c.Units == doneUnits):
		case a.status == 500 && len(got) == 0:
		default:
			t.Errorf("%s: told %d %q, wrote %d rows, and was charged for by %+v", key, a.status, a.code(), made[key], got)
		}
		delete(charges, key)
		delete(made, key)
	}
	if len(charges)+len(made) > 0 {
		t.Errorf("nobody was told of the charges %+v and the rows of %v", charges, made)
	}
}
