package issuing

import (
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// addLimits adds what the limits have against a new key, but for MaxKeys.
func (p *problems) addLimits(o *Options, k *keystore.Key, now time.Time) {
	if o.MaxLife > 0 && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(now.Add(o.MaxLife))) {
		p.add("expires_at", "The key must expire within %s.", lifeText(o.MaxLife))
	}
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
		return invalid("parent", "The limit of children of a key and theirs, %d, is reached. "+
			"Revoke one, or wait until one expires.", o.MaxChildren)
	}
	return invalid("organization", "The limit of an organization, %d, is reached. Revoke a key first.", o.MaxKeys)
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
