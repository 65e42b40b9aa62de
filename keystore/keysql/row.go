package keysql

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

const columns = "id, digest, organization, environment, name, hint, scopes, created_at, created_by, expires_at, " +
	"revoked_at, suspended, last_used_at, issue_token, rotated_from, version, legacy, attributes, networks, parent"

// scanKey reads a row of columns, and what more was selected.
func scanKey(row interface{ Scan(...any) error }, more ...any) (*keystore.Key, error) {
	k := new(keystore.Key)
	err := row.Scan(append([]any{&k.ID, (*digest)(&k.Digest), &k.Organization, &k.Environment, &k.Name, &k.Hint,
		fromJSON[[]scope.Name]{&k.Scopes}, (*instant)(&k.CreatedAt), &k.CreatedBy, (*instant)(&k.ExpiresAt),
		(*instant)(&k.RevokedAt), &k.Suspended, (*instant)(&k.LastUsedAt), &k.IssueToken, &k.RotatedFrom, &k.Version,
		&k.Legacy, fromJSON[map[string]string]{&k.Attributes}, fromJSON[[]netip.Prefix]{&k.Networks}, &k.Parent}, more...)...)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(k.Networks, func(n netip.Prefix) bool { return !n.IsValid() }) { // read from an empty text
		return nil, fmt.Errorf("%w: a network of key %q is none", keystore.ErrCorrupt, k.ID)
	}
	if len(k.Attributes) == 0 {
		k.Attributes = nil // as in most keys: a cached one is smaller so
	}
	if len(k.Networks) == 0 {
		k.Networks = nil
	}
	if k.Parent != "" {
		k.RotatedFrom = "" // see inserting
	}
	return k, nil
}

// An instant scans a time from any of the databases. NULL is the zero time.
type instant time.Time

func (t *instant) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*t = instant{}
	case int64:
		*t = instant(time.UnixMicro(v).UTC())
	case time.Time:
		*t = instant(v.UTC())
	case []byte: // a number from MySQL when the driver puts the arguments into the statement
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: a time came as %.32q", keystore.ErrCorrupt, v)
		}
		*t = instant(time.UnixMicro(n).UTC())
	default:
		return fmt.Errorf("%w: a time came as %T", keystore.ErrCorrupt, value)
	}
	return nil
}

type digest keystore.Digest

func (d *digest) Scan(value any) error {
	b, ok := value.([]byte)
	if !ok || len(b) != len(d) {
		return fmt.Errorf("%w: a digest came as %T of %d bytes", keystore.ErrCorrupt, value, len(b))
	}
	copy(d[:], b)
	return nil
}

// digestBytes returns a copy, since a write can outlast its caller's wait.
func digestBytes(k *keystore.Key) []byte {
	d := k.Digest
	return d[:]
}

// A fromJSON scans JSON from any of the databases. The text null is no error to
// json.Unmarshal, and would be a key without scopes.
type fromJSON[T []scope.Name | []netip.Prefix | map[string]string | []issuing.Change |
	map[string]keystore.Refusal] struct{ into *T }

func (j fromJSON[T]) Scan(value any) error {
	text, ok := value.([]byte)
	if s, isString := value.(string); isString {
		text, ok = []byte(s), true
	}
	var read T
	if !ok || json.Unmarshal(text, &read) != nil || read == nil {
		return fmt.Errorf("%w: %T is not JSON of %T: %.64q", keystore.ErrCorrupt, value, read, text)
	}
	*j.into = read
	return nil
}

// refusals scans refusals, which are stored by code. NULL is none.
type refusals []keystore.Refusal

func (r *refusals) Scan(value any) error {
	var read map[string]keystore.Refusal
	if value != nil {
		if err := (fromJSON[map[string]keystore.Refusal]{&read}).Scan(value); err != nil {
			return err
		}
	}
	*r = slices.SortedFunc(maps.Values(read), func(a, b keystore.Refusal) int { return b.At.Compare(a.At) })
	return nil
}

// asJSON returns the text of a list or an object. Nil is stored as an empty one.
func asJSON(value any, empty string) string {
	text, _ := json.Marshal(value) // texts always have a JSON form
	if string(text) == "null" {
		return empty
	}
	return string(text)
}

// isText reports whether each of the texts can be stored: Postgres takes UTF-8
// without a NUL byte and nothing else. The other databases take more, and
// are held to the same so that keys can move between them.
func isText(texts ...string) bool {
	for _, t := range texts {
		if !utf8.ValidString(t) || strings.IndexByte(t, 0) >= 0 {
			return false
		}
	}
	return true
}

// checkFields returns what of k cannot be stored. A MySQL server that is not in
// its strict mode would cut off what a column has no room for.
func (d dialect) checkFields(k *keystore.Key) error {
	texts := map[string]string{
		"ID": k.ID, "Organization": k.Organization, "Environment": string(k.Environment), "Hint": k.Hint,
		"CreatedBy": k.CreatedBy, "IssueToken": k.IssueToken, "RotatedFrom": k.RotatedFrom, "Legacy": k.Legacy,
		"Parent": k.Parent,
	}
	for _, text := range texts {
		if d.tooLong(text) {
			return fmt.Errorf("keysql: an identifier is longer than %d bytes: %.64q…", d.longest, text)
		}
	}
	texts["Name"] = k.Name
	for i, n := range k.Scopes {
		texts[fmt.Sprint("scope ", i)] = string(n)
	}
	for name, value := range k.Attributes {
		texts[fmt.Sprintf("the name of the attribute %.64q", name)] = name
		texts[fmt.Sprintf("attribute %.64q", name)] = value
	}
	for field, text := range texts {
		if !isText(text) {
			return fmt.Errorf("keysql: %s is not UTF-8 text without NUL bytes: %.64q", field, text)
		}
	}
	for _, n := range k.Networks {
		if !n.IsValid() {
			return fmt.Errorf("keysql: a network is %v", n)
		}
	}
	return nil
}

func (d dialect) tooLong(texts ...string) bool {
	return d.longest > 0 && slices.ContainsFunc(texts, func(t string) bool { return len(t) > d.longest })
}
