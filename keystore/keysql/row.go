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
		(*scopes)(&k.Scopes), (*instant)(&k.CreatedAt), &k.CreatedBy, (*instant)(&k.ExpiresAt),
		(*instant)(&k.RevokedAt), &k.Suspended, (*instant)(&k.LastUsedAt), &k.IssueToken, &k.RotatedFrom, &k.Version,
		&k.Legacy, (*attributes)(&k.Attributes), (*networks)(&k.Networks), &k.Parent}, more...)...)
	if err != nil {
		return nil, err
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

type (
	scopes     []scope.Name
	attributes map[string]string
	networks   []netip.Prefix
	changes    []issuing.Change
	refusals   []keystore.Refusal
)

func (s *scopes) Scan(value any) (err error) {
	*s, err = unmarshal[[]scope.Name](value, "scopes are not a JSON array of names")
	return err
}

func (a *attributes) Scan(value any) error {
	read, err := unmarshal[map[string]string](value, "attributes are not a JSON object of texts")
	if len(read) > 0 {
		*a = read
	}
	return err
}

// Scan reads the networks one by one: the empty text unmarshals as a network.
func (n *networks) Scan(value any) error {
	read, err := unmarshal[[]string](value, "networks are not a JSON array of texts")
	for _, text := range read {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("%w: %.64q is no network", keystore.ErrCorrupt, text)
		}
		*n = append(*n, network)
	}
	return err
}

func (c *changes) Scan(value any) (err error) {
	*c, err = unmarshal[[]issuing.Change](value, "changes are not a JSON array of objects")
	return err
}

// Scan reads the refusals by code. NULL is none.
func (r *refusals) Scan(value any) error {
	if value == nil {
		return nil
	}
	read, err := unmarshal[map[string]keystore.Refusal](value, "refusals are not a JSON object of objects")
	*r = slices.SortedFunc(maps.Values(read), func(a, b keystore.Refusal) int { return b.At.Compare(a.At) })
	return err
}

// unmarshal decodes JSON of a column. The text null is no error to
// json.Unmarshal, and would be a key without scopes.
func unmarshal[T []scope.Name | []string | map[string]string | []issuing.Change | map[string]keystore.Refusal](
	value any, otherwise string,
) (read T, err error) {
	var text []byte
	switch value := value.(type) {
	case string:
		text = []byte(value)
	case []byte:
		text = value
	default:
		return nil, fmt.Errorf("%w: %s: it came as %T", keystore.ErrCorrupt, otherwise, value)
	}
	if json.Unmarshal(text, &read) != nil || read == nil {
		return nil, fmt.Errorf("%w: %s: %.64q", keystore.ErrCorrupt, otherwise, text)
	}
	return read, nil
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
