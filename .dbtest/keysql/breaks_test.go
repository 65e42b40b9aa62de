package keysql_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

// Each statement, row and COMMIT of each method fails once. That is the error
// of the call, and no answer about the key, no short answer and no half of a
// write. What servers do when it happens is tried in .dbtest/adapters.
func TestEachFailure(t *testing.T) {
	t.Parallel()
	d := sqliteFile(t)
	whole := d.store(t)
	var step, fails int
	store := d.wrap(d.breaking(t, func(string) error {
		if step++; step == fails {
			return errBroken
		}
		return nil
	}), keysql.Options{})
	db := d.open(t)
	contents := func() string {
		return fmt.Sprintf("%s", values(t, db, "SELECT id || organization || version FROM sallyport_keys UNION ALL "+
			"SELECT id FROM sallyport_keys_audit UNION ALL SELECT id || requests FROM sallyport_keys_days"))
	}
	for _, method := range slices.Sorted(maps.Keys(breakable(whole, newKey("acme"), newKey("acme"), ""))) {
		for fails = 1; ; fails++ {
			start := present(t, whole)
			k := inserted(t, whole, rand.Text(), 2)[0]
			child := newKey(k.Organization)
			child.Parent = k.ID
			if err := errors.Join(insert(t.Context(), whole, child), whole.Update(t.Context(), k, newEntry(k)),
				whole.AddUses(t.Context(), needed(k))); err != nil {
				t.Fatal(err)
			}
			k.Version++
			before := contents()
			step = 0
			err := breakable(store, k, child, start)[method](t.Context())
			if step < fails {
				if err != nil || fails == 1 {
					t.Errorf("%s returned %v after %d steps, want nil and a step", method, err, step)
				}
				break
			}
			if !errors.Is(err, errBroken) || isAnswer(err) {
				t.Errorf("%s, whose step %d fails, returned %v, want its error", method, fails, err)
			}
			if contents() != before {
				t.Errorf("%s, whose step %d fails, has written", method, fails)
			}
		}
	}
	step, fails = 0, 0
	if err := store.AddUses(t.Context(), uses(inserted(t, whole, "acme", 1), time.Now())); err != nil || step != 1 {
		t.Errorf("AddUses without scopes and requests took %d statements, %v, want 1", step, err)
	}
}

// needed returns a use of two scopes of k.
func needed(k *keystore.Key) []keystore.Use {
	return []keystore.Use{{Organization: k.Organization, ID: k.ID, At: time.Now(), Requests: 1,
		Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}}}
}

// breakable returns calls that succeed if nothing breaks, of which those that
// read have several rows.
func breakable(s *keysql.Store, k, child *keystore.Key, start string) map[string]func(context.Context) error {
	all := calls(s, k)
	maps.Copy(all, map[string]func(context.Context) error{
		"Changes": func(ctx context.Context) error {
			changed, next, err := s.Changes(ctx, start)
			if err != nil && (changed != nil || next != "") {
				return errors.New("an answer beside the error")
			}
			return err
		},
		"List": func(ctx context.Context) error {
			page, err := s.List(ctx, k.Organization, issuing.Query{Total: true})
			if err != nil && (page.Keys != nil || page.Total != 0) {
				return errors.New("an answer beside the error")
			}
			return err
		},
		"Lookup, a child": func(ctx context.Context) error {
			got, err := s.Lookup(ctx, child.Digest)
			if err != nil && got != nil {
				return errors.New("an answer beside the error")
			}
			return err
		},
		"Insert, there already": func(ctx context.Context) error {
			if err := s.Insert(ctx, k, newEntry(k), 0); err != issuing.ErrExists {
				return err
			}
			return nil
		},
		"Update, overtaken": func(ctx context.Context) error {
			overtaken := *k
			overtaken.Version--
			if err := s.Update(ctx, &overtaken, newEntry(&overtaken)); err != issuing.ErrConflict {
				return err
			}
			return nil
		},
		"Insert": func(ctx context.Context) error {
			k := newKey(k.Organization)
			return s.Insert(ctx, k, newEntry(k), 3)
		},
		"AddUses": func(ctx context.Context) error { return s.AddUses(ctx, needed(k)) },
		"Update":  func(ctx context.Context) error { return s.Update(ctx, k, newEntry(k)) },
		"Audit": func(ctx context.Context) error {
			_, err := s.Audit(ctx, k.Organization, issuing.AuditQuery{})
			return err
		},
		"SweepAudit": func(ctx context.Context) error {
			_, err := s.SweepAudit(ctx, time.Now().Add(time.Hour))
			return err
		},
		"Erase": func(ctx context.Context) error { _, _, err := s.Erase(ctx, k.Organization, erasure); return err },
		"Usage": func(ctx context.Context) error { _, err := s.Usage(ctx, k.Organization, k.ID); return err },
	})
	return all
}
