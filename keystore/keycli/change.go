package keycli

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// This file changes keys, by edit, and ends them: revoke and erase.

func edit(c *call) func() error {
	name := c.flags.String("name", "", "another `name`")
	suspend := c.flags.Bool("suspend", false, "refuse the key until it is resumed")
	resume := c.flags.Bool("resume", false, "accept a suspended key again")
	without := several(c, "without", "`names` of scopes to take away, for good", scopeName)
	networks := several(c, "networks", "only `networks` that the key may be used from, within those of now, for good",
		netip.ParsePrefix)
	expires := c.time("expires", "earlier `TIME` from which the key is refused, for good", false)
	return func() error {
		less := len(*without)+len(*networks) > 0 || !expires.IsZero()
		if !less && *name == "" && *suspend == *resume || *suspend && *resume {
			return wrong("say what to change: -name, -suspend or -resume, -without, -networks, -expires")
		}
		k, err := c.key(c.args[0])
		if err != nil {
			return err
		}
		for _, n := range *without {
			i := slices.Index(k.Scopes, n)
			if i < 0 {
				return wrong("%s has no scope %q; it has: %s", k.ID, n, scopes(k))
			}
			k.Scopes = slices.Delete(k.Scopes, i, i+1)
		}
		if len(*networks) > 0 {
			k.Networks = *networks
		}
		if !expires.IsZero() {
			k.ExpiresAt = *expires
		}
		if less {
			if err := c.confirm(fmt.Sprintf("Leave %s the scopes [%s], the networks %v and the expiry %s?",
				describe(k), printable(scopes(k)), k.Networks, stamp(k.ExpiresAt)), "yes"); err != nil {
				return err
			}
		}
		k.Name, k.Suspended = cmp.Or(*name, k.Name), (k.Suspended || *suspend) && !*resume
		if k, err = c.issuer.Edit(c.ctx, *k); err != nil {
			return err
		}
		return c.done(c.record(k), "%s is changed, and is %s", describe(k), c.record(k).Status)
	}
}

func revoke(c *call) func() error {
	reasons := []string{issuing.ReasonLeaked, issuing.ReasonLeft, issuing.ReasonRotated, issuing.ReasonOther}
	c.flags.Lookup("reason").Usage = "`why`, for the history: " + strings.Join(reasons, ", ")
	before := c.time("made-before", "revoke the keys of -org that were made before this `TIME`", true)
	dry := c.flags.Bool("dry-run", false, "with -made-before, list them only")
	return func() error {
		if (len(c.args) == 1) != before.IsZero() || *dry && before.IsZero() {
			return wrong("say which ID, or -made-before and -org; -dry-run goes with the latter")
		}
		if c.reason != "" && !slices.Contains(reasons, c.reason) {
			return wrong("there is no reason %q for a revocation; there are: %s", c.reason, listed(reasons))
		}
		if !before.IsZero() {
			return c.revokeMany(*before, *dry)
		}
		k, err := c.key(c.args[0])
		if err != nil {
			return err
		}
		if k.Status(time.Now()) == keystore.Revoked {
			return c.done(c.record(k), "%s was revoked before, at %s", describe(k), stamp(k.RevokedAt))
		}
		if err := c.confirm("Revoke "+describe(k)+" for good?", "yes"); err != nil {
			return err
		}
		if k, err = c.issuer.Revoke(c.ctx, k.Organization, k.ID); err != nil {
			return err
		}
		return c.done(c.record(k), "%s is revoked; servers notice within CacheStats.MaxStaleness, 7 s by default",
			describe(k))
	}
}

// revokeMany revokes those of madeBefore.
func (c *call) revokeMany(before time.Time, dry bool) error {
	keys, err := c.madeBefore(before)
	if err != nil {
		return err
	}
	if ok, err := c.chosen(keys, dry, "Revoke", " for good"); !ok {
		return err
	}
	for i, k := range keys {
		if _, err := c.issuer.Revoke(c.ctx, c.organization, k.ID); err != nil {
			code, text := explain(err)
			return outcome{code, fmt.Sprintf("%d of %d keys are revoked: %s", i, len(keys), text)}
		}
	}
	c.say("%d keys are revoked", len(keys))
	return nil
}

// madeBefore returns the keys of -org that were made before a time and are
// active, or can be again.
func (c *call) madeBefore(t time.Time) (keys []*keystore.Key, err error) {
	if c.organization == "" {
		return nil, wrong("say whose keys with -org")
	}
	q := issuing.Query{Status: keystore.Active, OrStatus: keystore.Suspended}
	err = c.find(q, func(page []*keystore.Key) error {
		keys = append(keys, slices.DeleteFunc(page, func(k *keystore.Key) bool { return !k.CreatedAt.Before(t) })...)
		return nil
	})
	return keys, err
}

// chosen prints keys, and reports whether there are some and, unless dry, whether
// somebody wants that done to them.
func (c *call) chosen(keys []*keystore.Key, dry bool, verb, how string) (bool, error) {
	err := c.keys(keys, "SCOPES", scopes)
	if err != nil || dry || len(keys) == 0 {
		return false, c.none(err, "no such key")
	}
	err = c.confirm(fmt.Sprintf("%s these %d keys of %s%s?", verb, len(keys), clean(c.organization), how), "yes")
	return err == nil, err
}

func erase(c *call) error {
	organization, name := c.args[0], clean(c.args[0])
	if c.organization != "" && c.organization != organization {
		return wrong("-org and the argument name two organizations")
	}
	if err := c.confirm(fmt.Sprintf("Remove all keys of %s, their history and its replies?", name),
		organization); err != nil {
		return err
	}
	var store idem.Eraser
	var err error
	if c.Replies != nil {
		if store, err = c.Replies(c.ctx, c.Getenv); err != nil {
			return err
		}
	}
	keys, entries, err := c.issuer.Erase(c.ctx, organization)
	if err != nil {
		return err
	}
	counts := map[string]int{"keys": keys, "entries": entries}
	text := fmt.Sprintf("%d keys of %s and %d entries of their history are removed", keys, name, entries)
	if store == nil {
		return c.done(counts, "%s; there are no replies here", text)
	}
	if counts["replies"], err = store.Erase(c.ctx, organization); err != nil {
		return fmt.Errorf("%s, but not all replies; erase again: %w", text, err)
	}
	return c.done(counts, "%s, and %d replies; erase again when its last requests have ended", text, counts["replies"])
}
