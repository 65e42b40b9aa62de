package keysql_test

import (
	"errors"
	"net/netip"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

// Drivers differ in the types that they give for a text, a time or bytes. What
// somebody has spoilt is an error, and not a key without scopes.
func TestScan(t *testing.T) {
	at, d := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC), keystore.DigestOf("token")
	for _, row := range []struct {
		column string
		values []any
		want   any // nil: ErrCorrupt
	}{
		{"scopes", []any{`["tasks:read"]`, []byte(`["tasks:read"]`)}, []scope.Name{scope.TasksRead}},
		{"attributes", []any{`{"plan":"pro"}`, []byte(`{"plan":"pro"}`)}, map[string]string{"plan": "pro"}},
		{"networks", []any{`["192.0.2.0/24"]`, []byte(`["192.0.2.0/24"]`)},
			[]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
		{"refusals", []any{`{"a":{"code":"a"}}`, []byte(`{"a":{"code":"a"}}`)}, []keystore.Refusal{{Code: "a"}}},
		{"refusals", []any{nil}, []keystore.Refusal(nil)},
		{"time", []any{at, at.In(time.FixedZone("east", 3600)), at.UnixMicro(), strconv.AppendInt(nil, at.UnixMicro(), 10)},
			at},
		{"time", []any{nil}, time.Time{}},
		{"digest", []any{d[:]}, d},

		{"scopes", []any{nil, int64(1), "", "null", "{}", "[1]", `"tasks:read"`, "tasks:read", `["tasks:read"`}, nil},
		{"attributes", []any{nil, "", "null", "[]", `{"plan":1}`, `{"plan":"pro"`, `"plan"`}, nil},
		{"networks", []any{int64(1), "", "null", "{}", "[1]", `["192.0.2.1"]`, `["192.0.2.0/24","192.0.2.0/33"]`,
			`"192.0.2.0/24"`}, nil},
		{"refusals", []any{"[]"}, nil},
		{"time", []any{"2026-03-04", []byte("2026-03-04")}, nil},
		{"digest", []any{nil, d[:31], append(d[:], 0), string(d[:])}, nil},
	} {
		for _, value := range row.values {
			got, err := keysql.Scans[row.column](value)
			if row.want == nil && !errors.Is(err, keystore.ErrCorrupt) {
				t.Errorf("%s, %T %.40q: got %v, %v, want ErrCorrupt", row.column, value, value, got, err)
			}
			if row.want != nil && (err != nil || !reflect.DeepEqual(got, row.want)) {
				t.Errorf("%s as %T: got %v, %v, want %v", row.column, value, got, err, row.want)
			}
		}
	}
}
