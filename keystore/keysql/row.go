package keysql

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

const columns = "id, digest, organization, environment, name, hint, scopes, created_at, created_by, expires_at, revoked_at, suspended, last_used_at, issue_token, rotated_from, version"

// scanKey reads a row of columns.
func scanKey(row interface{ Scan(...any) error }) (*keystore.Key, error) {
	k := new(keystore.Key)
	err := row.Scan(&k.ID, (*digest)(&k.Digest), &k.Organization, &k.Environment, &k.Name, &k.Hint, (*scopes)(&k.Scopes),
		(*instant)(&k.CreatedAt), &k.CreatedBy, (*instant)(&k.ExpiresAt), (*instant)(&k.RevokedAt), &k.Suspended, (*instant)(&k.LastUsedAt),
		&k.IssueToken, &k.RotatedFrom, &k.Version)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// An instant scans a time of either dialect. NULL is the zero time.
type instant time.Time

func (t *instant) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*t = instant{}
	case int64:
		*t = instant(time.UnixMicro(v).UTC())
	case time.Time:
		*t = instant(v.UTC())
	default:
		return fmt.Errorf("%w: a time came as %T", keystore.ErrCorrupt, value)
	}
	return nil
}

type digest keystore.Digest

func (d *digest) Scan(value any) error {
	b, _ := value.([]byte)
	if len(b) != len(d) {
		return fmt.Errorf("%w: a digest has %d bytes", keystore.ErrCorrupt, len(b))
	}
	copy(d[:], b)
	return nil
}

// digestBytes returns a copy, since a write can outlast its caller's wait.
func digestBytes(k *keystore.Key) []byte {
	d := k.Digest
	return d[:]
}

type scopes []scope.Name

func (s *scopes) Scan(value any) error {
	text, ok := value.(string)
	if b, isBytes := value.([]byte); isBytes {
		text, ok = string(b), true
	}
	if !ok {
		return fmt.Errorf("%w: scopes came as %T", keystore.ErrCorrupt, value)
	}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return fmt.Errorf("%w: scopes are not a JSON array of names: %w", keystore.ErrCorrupt, err)
	}
	return nil
}

func scopesText(k *keystore.Key) string {
	if len(k.Scopes) == 0 {
		return "[]"
	}
	// Names are text, and text always has a JSON form.
	text, _ := json.Marshal(k.Scopes)
	return string(text)
}

// isText reports whether each of the texts can be stored: Postgres takes UTF-8
// without a NUL byte and nothing else. SQLite takes more and is held to the
// same, so that keys can move from one to the other.
func isText(texts ...string) bool {
	for _, t := range texts {
		if !utf8.ValidString(t) || strings.IndexByte(t, 0) >= 0 {
			return false
		}
	}
	return true
}

func checkText(k *keystore.Key) error {
	for _, field := range []struct{ name, text string }{
		{"ID", k.ID},
		{"Organization", k.Organization},
		{"Environment", string(k.Environment)},
		{"Name", k.Name},
		{"Hint", k.Hint},
		{"CreatedBy", k.CreatedBy},
		{"IssueToken", k.IssueToken},
		{"RotatedFrom", k.RotatedFrom},
	} {
		if !isText(field.text) {
			return fmt.Errorf("keysql: %s is not UTF-8 text without NUL bytes: %.64q", field.name, field.text)
		}
	}
	for _, n := range k.Scopes {
		if !isText(string(n)) {
			return fmt.Errorf("keysql: a scope is not UTF-8 text without NUL bytes: %.64q", n)
		}
	}
	return nil
}
