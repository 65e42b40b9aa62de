package keysql

import (
	"database/sql"
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// Scans read what a driver gave for a column. A time is as of the row before.
var Scans = map[string]func(value any) (any, error){
	"scopes":     scanned(func(into *[]scope.Name) sql.Scanner { return fromJSON[[]scope.Name]{into} }),
	"attributes": scanned(func(into *map[string]string) sql.Scanner { return fromJSON[map[string]string]{into} }),
	"networks":   scanned(func(into *[]netip.Prefix) sql.Scanner { return fromJSON[[]netip.Prefix]{into} }),
	"refusals":   scanned(func(into *[]keystore.Refusal) sql.Scanner { return (*refusals)(into) }),
	"digest":     scanned(func(into *keystore.Digest) sql.Scanner { return (*digest)(into) }),
	"time":       scanned(func(into *time.Time) sql.Scanner { *into = time.Now(); return (*instant)(into) }),
}

func scanned[T any](scanner func(into *T) sql.Scanner) func(value any) (any, error) {
	return func(value any) (any, error) {
		var into T
		err := scanner(&into).Scan(value)
		return into, err
	}
}
