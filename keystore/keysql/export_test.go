package keysql

import (
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// ScanScopes and the other Scan functions read what a driver gave for a column.
func ScanScopes(value any) (names []scope.Name, err error) {
	err = (fromJSON[[]scope.Name]{&names}).Scan(value)
	return names, err
}

func ScanAttributes(value any) (read map[string]string, err error) {
	err = (fromJSON[map[string]string]{&read}).Scan(value)
	return read, err
}

func ScanNetworks(value any) (read []netip.Prefix, err error) {
	err = (fromJSON[[]netip.Prefix]{&read}).Scan(value)
	return read, err
}

func ScanRefusals(value any) (read []keystore.Refusal, err error) {
	err = (*refusals)(&read).Scan(value)
	return read, err
}

func ScanDigest(value any) (d keystore.Digest, err error) {
	err = (*digest)(&d).Scan(value)
	return d, err
}

func ScanInstant(value any) (t time.Time, err error) {
	t = time.Now() // as of the row before
	err = (*instant)(&t).Scan(value)
	return t, err
}
