package issuing

import (
	"errors"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A Policy limits which keys are issued. The zero Policy limits nothing. Keys
// that are there already, and imported ones, stay as they are; the successor of
// a key has its expiry, or MaxLife if that is shorter, unless [Issuer.Rotate] is
// given another.
type Policy struct {
	MaxLife    time.Duration // longest time until a key expires: each needs an expiry then. Zero: any
	NeedExpiry []scope.Name  // a key that may do one of these needs an expiry

	// MaxKeys is how many keys an organization may have. Those that have
	// expired, are revoked, or will be after a rotation do not count. Of the
	// last kind there may be MaxKeys too: then [Issuer.Rotate] refuses any
	// overlap. Concurrent calls of Rotate can each add the last one, those of
	// Issue only if the store is no [Auditor]. Zero: any number.
	MaxKeys int

	// Of children, see [Issuer.Delegate]: the longest time until one expires,
	// how many of one parent may live at once, which do not count in MaxKeys,
	// and the names of the attributes that one may have beside its parent's.
	// Zero: any time, any number and no name. With MaxChildren n one key has up
	// to n+n²+n³ descendants. Revoked children do not count, and stay until they
	// expire: set MaxChildLife where callers may revoke.
	MaxChildLife    time.Duration
	MaxChildren     int
	ChildAttributes []string
}

// validate returns an error when the policy cannot be meant.
func (p Policy) validate(r *scope.Registry) error {
	if p.MaxLife < 0 || p.MaxKeys < 0 || p.MaxChildLife < 0 || p.MaxChildren < 0 {
		return errors.New("issuing: Policy with a negative limit")
	}
	if _, unknown := r.Parse(p.NeedExpiry); len(unknown) > 0 {
		return fmt.Errorf("issuing: Policy.NeedExpiry has scopes that the service does not: %q", unknown)
	}
	return nil
}

// problems returns what the policy has against a new key, its number of keys left
// out.
func (p Policy) problems(k *keystore.Key, r *scope.Registry, now time.Time) []keystore.FieldError {
	if p.MaxLife > 0 && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(now.Add(p.MaxLife))) {
		message := fmt.Sprintf("The key must expire within %s.", lifeText(p.MaxLife))
		return []keystore.FieldError{problem("expires_at", message)}
	}
	granted, _ := r.Parse(k.Scopes)
	for _, n := range p.NeedExpiry {
		if k.ExpiresAt.IsZero() && granted.Has(n) {
			return []keystore.FieldError{problem("expires_at", fmt.Sprintf("A key with the scope %s needs an expiry.", n))}
		}
	}
	return nil
}

// latest returns when the successor of a key expires.
func (p Policy) latest(expires, now time.Time) time.Time {
	if last := now.Add(p.MaxLife); p.MaxLife > 0 && (expires.IsZero() || expires.After(last)) {
		return last
	}
	return expires
}

// tooManyKeys is the error of a new key with this parent.
func (p Policy) tooManyKeys(parent string) error {
	if parent != "" {
		return invalid(problem("parent", fmt.Sprintf(
			"The limit of children of a key, %d, is reached. Revoke one, or wait until one expires.", p.MaxChildren)))
	}
	return invalid(problem("organization", fmt.Sprintf(
		"The limit of an organization, %d, is reached. Revoke a key first.", p.MaxKeys)))
}

func (p Policy) tooManyOverlaps() error {
	return invalid(problem("overlap", fmt.Sprintf(
		"The limit of rotated keys that still work, %d, is reached. Revoke one, or end this one at once.", p.MaxKeys)))
}

func lifeText(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 1 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", days)
	}
	return d.String()
}

// counts reports whether the key is one of Policy.MaxKeys.
func counts(k *keystore.Key, now time.Time) bool {
	return k.RevokedAt.IsZero() && k.Status(now) != keystore.Expired
}

// retires reports whether the key ends at a time that is set, such as the end
// of an overlap.
func retires(k *keystore.Key, now time.Time) bool {
	s := k.Status(now)
	return !k.RevokedAt.IsZero() && s != keystore.Revoked && s != keystore.Expired
}
