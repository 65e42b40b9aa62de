package keysql_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

// Drivers differ in the types that they give for a text, a time or bytes.
func TestScan(t *testing.T) {
	for _, value := range []any{`["tasks:read"]`, []byte(`["tasks:read"]`)} {
		if got, err := keysql.ScanScopes(value); err != nil || len(got) != 1 || got[0] != scope.TasksRead {
			t.Errorf("scopes as %T: got %v, %v", value, got, err)
		}
	}
	for _, value := range []any{`{"plan":"pro"}`, []byte(`{"plan":"pro"}`)} {
		if got, err := keysql.ScanAttributes(value); err != nil || len(got) != 1 || got["plan"] != "pro" {
			t.Errorf("attributes as %T: got %v, %v", value, got, err)
		}
	}
	for _, value := range []any{`["192.0.2.0/24"]`, []byte(`["192.0.2.0/24"]`)} {
		if got, err := keysql.ScanNetworks(value); err != nil || len(got) != 1 || got[0].String() != "192.0.2.0/24" {
			t.Errorf("networks as %T: got %v, %v", value, got, err)
		}
	}
	for _, value := range []any{nil, `{"a":{"code":"a"}}`, []byte(`{"a":{"code":"a"}}`)} {
		if got, err := keysql.ScanRefusals(value); err != nil || (value != nil) != (len(got) == 1 && got[0].Code == "a") {
			t.Errorf("refusals as %T: got %v, %v", value, got, err)
		}
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	for _, value := range []any{at, at.In(time.FixedZone("east", 3600)), at.UnixMicro(),
		strconv.AppendInt(nil, at.UnixMicro(), 10)} {
		if got, err := keysql.ScanInstant(value); err != nil || got != at {
			t.Errorf("a time as %T: got %v, %v", value, got, err)
		}
	}
	if got, err := keysql.ScanInstant(nil); err != nil || !got.IsZero() {
		t.Errorf("NULL: got %v, %v, want the zero time", got, err)
	}
	d := keystore.DigestOf("token")
	if got, err := keysql.ScanDigest(d[:]); err != nil || got != d {
		t.Errorf("a digest: got %x, %v", got, err)
	}
	_, noScopes := keysql.ScanScopes(nil)
	_, numericScopes := keysql.ScanScopes(int64(1))
	_, noAttributes := keysql.ScanAttributes(nil)
	_, noNetworks := keysql.ScanNetworks(int64(1))
	_, listedRefusals := keysql.ScanRefusals("[]")
	_, textTime := keysql.ScanInstant("2026-03-04")
	_, bytesTime := keysql.ScanInstant([]byte("2026-03-04"))
	_, noDigest := keysql.ScanDigest(nil)
	_, shortDigest := keysql.ScanDigest(d[:31])
	_, longDigest := keysql.ScanDigest(append(d[:], 0))
	_, textDigest := keysql.ScanDigest(string(d[:]))
	for name, err := range map[string]error{
		"NULL as scopes": noScopes, "a number as scopes": numericScopes, "NULL as attributes": noAttributes,
		"a number as networks": noNetworks, "a list as refusals": listedRefusals,
		"text as a time": textTime, "bytes as a time": bytesTime,
		"NULL as a digest": noDigest,
		"31 bytes":         shortDigest, "33 bytes": longDigest, "text as a digest": textDigest,
	} {
		if !errors.Is(err, keystore.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
}
