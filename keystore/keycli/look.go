package keycli

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// This file looks at keys: list, verify, show and audit.

func list(c *call) func() error {
	active := c.flags.Bool("active", false, "only active keys; that goes without saying with the flags below")
	by := c.flags.String("created-by", "", "only keys that the `actor` with this id made")
	expiring := c.time("expiring", "only keys that expire before this `TIME`", false)
	never := c.flags.Bool("never-used", false, "only keys that were never used")
	parent := c.flags.String("parent", "", "only children of the `KEY` with this id; without it none is listed")
	wanted := c.flags.String("scope", "", "only keys that hold the scope with this `name`, and by which of theirs")
	unused := c.time("unused", "only keys that are older than this `TIME` and were not used since", true)
	return func() error {
		q := issuing.Query{ExpiresBefore: *expiring, UnusedSince: *unused, NeverUsed: *never, Parent: *parent, CreatedBy: *by}
		registry, column, note := c.issuer.Service().Scopes, "SCOPES", c.scopesAndChildren
		if *wanted != "" {
			if err := known(registry, scope.Name(*wanted)); err != nil {
				return err
			}
			column, note = "BY", func(k *keystore.Key) string { return grants(registry, k, scope.Name(*wanted)) }
		}
		if *active || *wanted != "" || q != (issuing.Query{}) {
			q.Status = keystore.Active
		} else if c.organization == "" {
			return wrong("say whose keys with -org, or which of all: -active, -created-by, -expiring, -parent, -scope, " +
				"-unused or -never-used")
		}
		err := c.find(q, func(keys []*keystore.Key) error {
			if *parent != "" { // a list has no ancestors
				above, err := c.issuer.Key(c.ctx, keys[0].Organization, *parent)
				if err != nil && !errors.Is(err, keystore.ErrNotFound) { // as if it was swept
					return err
				}
				for _, k := range keys {
					if above != nil {
						k.Ancestors = append([]*keystore.Key{above}, above.Ancestors...)
					}
				}
			}
			if *wanted != "" {
				keys = slices.DeleteFunc(keys, func(k *keystore.Key) bool { return note(k) == "" })
			}
			return c.keys(keys, column, note)
		})
		what := "no such key"
		if q == (issuing.Query{}) {
			what = "no keys"
		}
		return c.none(err, what)
	}
}

func (c *call) scopesAndChildren(k *keystore.Key) string {
	if n := c.children[k.ID]; n > 0 {
		return fmt.Sprintf("%s (%d children)", scopes(k), n)
	}
	return scopes(k)
}

// grants returns the scopes of k that grant the wanted one.
func grants(registry *scope.Registry, k *keystore.Key, wanted scope.Name) string {
	return listed(slices.DeleteFunc(slices.Clone(k.Scopes), func(n scope.Name) bool {
		held, _ := registry.Parse([]scope.Name{n})
		return !held.Has(wanted)
	}))
}

func scopes(k *keystore.Key) string { return listed(k.Scopes) }

// find calls each for each page of the keys that q selects, of the organization,
// or of all if none is given.
func (c *call) find(q issuing.Query, each func([]*keystore.Key) error) error {
	q.AllOrganizations, q.Children = c.organization == "", true
	for q.Limit = 200; ; {
		page, err := c.issuer.Keys(c.ctx, c.organization, q)
		if err != nil || len(page.Keys) == 0 {
			return err
		}
		q.After, c.children = page.Keys[len(page.Keys)-1], page.Children
		if err := each(page.Keys); err != nil {
			return err
		}
	}
}

// known returns an error for a scope that the service does not have.
func known(registry *scope.Registry, n scope.Name) error {
	if registry.Known(n) {
		return nil
	}
	if meant, ok := registry.Suggest(n); ok {
		return wrong("there is no scope %q; did you mean %q?", n, meant)
	}
	return wrong("there is no scope %q; there are: %s", n, registry)
}

func verify(c *call) func() error {
	var from netip.Addr
	c.flags.TextVar(&from, "from", from, "`address` that a request with the token comes from")
	needed := c.flags.String("scope", "", "`name` of a scope that the request needs")
	return func() error {
		registry := c.issuer.Service().Scopes
		if err := known(registry, scope.Name(*needed)); *needed != "" && err != nil {
			return err
		}
		k, err := c.tokensKey()
		if code, text := explain(err); code == absent {
			return refuse("refused: %s", text)
		}
		if err == nil {
			err = c.keys([]*keystore.Key{k}, "SCOPES", scopes)
		}
		if err != nil {
			return err
		}
		caller := k.Bind(registry)
		switch granted := caller.Granted(); {
		case k.Refused() != nil:
			return refuse("refused: %s", unprefixed(k.Refused()))
		case from.IsValid() && !caller.AllowsAddress(from):
			text := fmt.Sprintf("refused from %s", from)
			for _, of := range append([]*keystore.Key{k}, k.Ancestors...) {
				if len(of.Networks) > 0 {
					text += fmt.Sprintf("; %s may be used from %v", of.ID, of.Networks)
				}
			}
			return refuse("%s", text)
		case *needed != "" && !granted.Has(scope.Name(*needed)):
			return refuse("refused where %q is needed: the key holds %s", *needed, granted)
		}
		return nil
	}
}

func show(c *call) error {
	k, err := c.key(c.args[0])
	if err != nil {
		return err
	}
	use, err := c.issuer.Usage(c.ctx, k.Organization, k.ID)
	if err != nil {
		return err
	}
	var history []issuing.AuditEntry
	err = c.history(k.Organization, issuing.AuditQuery{Key: k.ID}, func(page []issuing.AuditEntry) error {
		history = append(history, page...)
		return nil
	})
	if err != nil {
		return err
	}
	if c.json {
		return encode(c.Stdout, struct {
			record
			Usage   *issuing.Usage       `json:"usage"`
			History []issuing.AuditEntry `json:"history"`
		}{c.record(k), use, history})
	}
	if err := c.keys([]*keystore.Key{k}, "NETWORKS",
		func(k *keystore.Key) string { return listed(k.Networks) }); err != nil {
		return err
	}
	return c.table(append(uses(k, use), acts(history)...))
}

func audit(c *call) func() error {
	var q issuing.AuditQuery
	c.flags.StringVar(&q.Key, "key", "", "only what was done to the `KEY` with this id")
	c.flags.StringVar(&q.Act, "act", "", "only this `act`: issue, delegate, rotate, revoke, suspend, resume, rename, "+
		"edit, import or erase")
	c.flags.StringVar(&q.Actor, "actor", "", "only what this `person` did")
	since := c.time("since", "only what was done at this `TIME` or later", true)
	return func() error {
		q.Since, q.AllOrganizations = *since, c.organization == ""
		return c.none(c.history(c.organization, q, func(page []issuing.AuditEntry) (err error) {
			rows := acts(page)
			c.titled = true
			for i, e := range page {
				name := cmp.Or(strings.TrimSuffix(e.KeyName+" …"+e.KeyHint, " …"), "-")
				rows[i] = slices.Insert(rows[i], 2, e.Organization, cmp.Or(e.Key, "-"), name)
				if c.json {
					err = errors.Join(err, encode(c.Stdout, e))
				}
			}
			if c.json {
				return err
			}
			return c.table(rows)
		}), "no such entry")
	}
}

// history calls each for each page of what q selects, the newest entry first.
func (c *call) history(organization string, q issuing.AuditQuery, each func([]issuing.AuditEntry) error) error {
	for q.Limit = 1000; ; {
		page, err := c.issuer.Audit(c.ctx, organization, q)
		if err != nil || len(page) == 0 {
			return err
		}
		q.After = page[len(page)-1].ID
		if err := each(page); err != nil {
			return err
		}
	}
}

// uses are lines about when the scopes of a key were needed, how often the key
// was used, and how it was refused.
func uses(k *keystore.Key, use *issuing.Usage) (rows [][]string) {
	for _, n := range k.Scopes {
		needed := ""
		if day, ok := use.Scopes[n]; ok {
			needed = "needed on " + day.Format(time.DateOnly)
		} else if !use.ObservedSince.IsZero() {
			needed = "not needed since " + use.ObservedSince.UTC().Format(time.DateOnly)
		}
		rows = append(rows, []string{"scope", string(n), needed})
	}
	if use.LastUsedFrom.IsValid() {
		rows = append(rows, []string{"last used", stamp(use.LastUsedAt), "from " + use.LastUsedFrom.String()})
	}
	for _, r := range use.Refusals {
		rows = append(rows, []string{"refused", stamp(r.At), strings.TrimSpace(r.Code + " " + r.Route)})
	}
	for _, d := range use.Days {
		rows = append(rows, []string{"requests", d.Date.Format(time.DateOnly), strconv.FormatInt(d.Requests, 10)})
	}
	return rows
}

// acts are lines about what was done to a key, the newest first.
func acts(history []issuing.AuditEntry) (rows [][]string) {
	for _, e := range history {
		text := "by " + e.Actor
		if e.Reason != "" {
			text += ": " + e.Reason
		}
		for _, change := range e.Changes {
			switch {
			case change.Field == "suspended":
				text += "; " + map[string]string{"true": "suspended", "": "resumed"}[change.After]
			case change.Before == "":
				text += fmt.Sprintf("; %s %q", change.Field, change.After)
			default:
				text += fmt.Sprintf("; %s %q, was %q", change.Field, change.After, change.Before)
			}
		}
		rows = append(rows, []string{e.Act, stamp(e.At), text})
	}
	return rows
}
