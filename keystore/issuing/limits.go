package issuing

import (
	"errors"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// validate returns an error when the limits cannot be meant.
func (o Options) validate() error {
	if o.MaxLife < 0 || o.MaxKeys < 0 || o.MaxChildLife < 0 || o.MaxChildren < 0 {
		return errors.New("issuing: Options with a negative limit")
	}
	return nil
}

// problems returns what the limits have against a new key, but for MaxKeys.
func (o Options) problems(k *keystore.Key, now time.Time) []keystore.FieldError {
	if o.MaxLife > 0 && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(now.Add(o.MaxLife))) {
		message := fmt.Sprintf("The key must expire within %s.", lifeText(o.MaxLife))
		return []keystore.FieldError{problem("expires_at", message)}
	}
	return nil
}

// latest returns when the successor of a key expires.
func (o Options) latest(expires, now time.Time) time.Time {
	if last := now.Add(o.MaxLife); o.MaxLife > 0 && (expires.IsZero() || expires.After(last)) {
		return last
	}
	return expires
}

// tooManyKeys is the error of a new key with this parent.
func (o Options) tooManyKeys(parent string) error {
	if parent != "" {
		return invalid(problem("parent", fmt.Sprintf(
			"The limit of children of a key and theirs, %d, is reached. Revoke one, or wait until one expires.",
			o.MaxChildren)))
	}
	return invalid(problem("organization", fmt.Sprintf(
		"The limit of an organization, %d, is reached. Revoke a key first.", o.MaxKeys)))
}

func (o Options) tooManyOverlaps() error {
	return invalid(problem("overlap", fmt.Sprintf(
		"The limit of rotated keys that still work, %d, is reached. Revoke one, or end this one at once.", o.MaxKeys)))
}

func lifeText(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 1 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", days)
	}
	return d.String()
}

// counts reports whether the key is one of Options.MaxKeys.
func counts(k *keystore.Key, now time.Time) bool {
	return k.RevokedAt.IsZero() && k.Status(now) != keystore.Expired
}
