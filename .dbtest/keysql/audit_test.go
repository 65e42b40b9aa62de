package keysql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// newEntry returns an entry about k.
func newEntry(k *keystore.Key) issuing.AuditEntry {
	return issuing.AuditEntry{ID: fmt.Sprintf("act_%014x", time.Now().UnixMicro()) + k.ID, At: time.Now(),
		Act: "issue", Organization: k.Organization, Key: k.ID}
}

// erasure returns the entry of an erasure of acme.
func erasure(keys, entries int) issuing.AuditEntry {
	e := newEntry(&keystore.Key{ID: fmt.Sprint(keys, "of", entries), Organization: "acme"})
	e.Act, e.Key = "erase", ""
	return e
}

// insert stores k with an entry.
func insert(ctx context.Context, s *keysql.Store, k *keystore.Key) error {
	return s.Insert(ctx, k, newEntry(k), 0)
}

// An act whose entry cannot be stored does not take place.
func TestNoActWithoutItsEntry(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		there, k := inserted(t, store, "acme", 1)[0], newKey("acme")
		execute(t, d.open(t), "DROP TABLE sallyport_keys_audit")
		there.Name = "changed"
		for method, err := range map[string]error{
			"Insert": store.Insert(t.Context(), k, newEntry(k), 0),
			"Update": store.Update(t.Context(), there, newEntry(there)),
		} {
			if err == nil || errors.Is(err, issuing.ErrExists) || errors.Is(err, issuing.ErrConflict) {
				t.Errorf("%s returned %v, want the error of the database", method, err)
			}
		}
		if _, _, err := store.Erase(t.Context(), "acme", erasure); err == nil {
			t.Error("Erase returned nil")
		}
		if _, err := store.Lookup(t.Context(), k.Digest); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("Lookup of the key that was not stored returned %v", err)
		}
		if got := lookup(t, store, there); got.Version != 1 || got.Name == "changed" {
			t.Errorf("the key that was there is %+v, want it as it was", got)
		}
	})
}

// An entry that not every database could keep is refused before anything is
// written, and one that somebody has spoilt is no entry.
func TestBadEntries(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		k := newKey("acme")
		for _, reason := range []string{"\xff", "\x00"} {
			e := newEntry(k)
			e.Reason = reason
			if err := store.Insert(t.Context(), k, e, 0); err == nil || !strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("Insert with the reason %q returned %v", reason, err)
			}
		}
		for _, args := range [][3]string{{"\xff", "", ""}, {"acme", "\x00", ""}, {"acme", "", "\xff"}} {
			page, err := store.Audit(t.Context(), args[0], issuing.AuditQuery{Key: args[1], After: args[2]})
			if err != nil || page != nil {
				t.Errorf("Audit(%q) returned %v, %v, want nothing", args, page, err)
			}
		}
		mustInsert(t, store, k)
		if _, _, err := store.Erase(t.Context(), "acme", func(keys, entries int) issuing.AuditEntry {
			e := erasure(keys, entries)
			e.Actor = "\xff"
			return e
		}); err == nil || !strings.Contains(err.Error(), "UTF-8") || lookup(t, store, k).Organization != "acme" {
			t.Errorf("Erase by the actor \\xff returned %v, or erased the key", err)
		}
		execute(t, d.open(t), "UPDATE sallyport_keys_audit SET changes = 'null'")
		page, err := store.Audit(t.Context(), "acme", issuing.AuditQuery{})
		if !errors.Is(err, keystore.ErrCorrupt) || page != nil {
			t.Errorf("Audit of a spoilt entry returned %v, %v, want ErrCorrupt", page, err)
		}
	})
}

// A server notices with its next question to the feed that another one has
// erased an organization. What tells of the organization is gone at once, and
// the rest an hour later.
func TestErasedOnAnotherServer(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		a, b := servers(t, d)
		issuer := issuing.New(a, issuing.Options{})
		k, token := issuedOn(t, issuer, b)
		db := d.open(t)
		store := d.wrap(db, keysql.Options{})
		addUses(t, store, []keystore.Use{observed(k, time.Now()), refused(k, time.Now(), "not_found", "")})
		k.Name = "renamed"
		if _, err := issuer.Edit(t.Context(), *k); err != nil {
			t.Fatal(err)
		}
		if keys, entries, err := issuer.Erase(t.Context(), "acme"); keys != 1 || entries != 2 || err != nil {
			t.Fatalf("Erase returned %d, %d, %v, want 1, 2", keys, entries, err)
		}
		if got, err := a.Lookup(t.Context(), token); err != nil || !errors.Is(got.Refused(), keystore.ErrRevoked) {
			t.Errorf("after Erase Lookup returned %v, %v, want a key that is revoked", got, err)
		}
		eventually(t, "server B never noticed the erasure", func() bool {
			got, err := b.Lookup(t.Context(), token)
			return err == nil && errors.Is(got.Refused(), keystore.ErrRevoked)
		})

		count := func(from string) int { return count(t, db, "sallyport_keys"+from) }
		if count("") != 1 || count(" WHERE refusals IS NOT NULL") != 0 || count("_audit") != 1 ||
			count("_scopes")+count("_days") != 0 {
			t.Error("after Erase there are other rows than that of the digest and that of the erasure, or refusals")
		}
		for _, all := range []bool{false, true} { // also in no list of a caller who has no organization
			page, err := store.List(t.Context(), "", issuing.Query{AllOrganizations: all, Total: true})
			if len(page.Keys) != 0 || page.Total != 0 || err != nil {
				t.Errorf("of all organizations %t: got %d keys of %d, %v, want none", all, len(page.Keys), page.Total, err)
			}
		}
		_, other, err := issuer.Issue(t.Context(), keystore.Key{Organization: "other", Environment: keystore.Production})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := issuer.Revoke(t.Context(), "other", other.ID); err != nil {
			t.Fatal(err)
		}
		ofNobody := newKey("") // by SQL: an Issuer issues none
		ofNobody.RevokedAt = time.Now()
		mustInsert(t, store, ofNobody)
		sweep := func(want int) {
			t.Helper()
			if _, err := issuer.SweepAudit(t.Context(), time.Hour); err != nil || count("") != want {
				t.Errorf("after SweepAudit, %v, there are %d keys, want %d", err, count(""), want)
			}
		}
		sweep(3)
		if keys, entries, err := store.Erase(t.Context(), "", erasure); keys != 0 || entries != 0 || err != nil {
			t.Errorf("Erase without an organization returned %d, %d, %v, want nothing", keys, entries, err)
		}
		sweep(3)
		execute(t, db, "UPDATE sallyport_keys SET revoked_at = "+map[string]string{
			"postgres": "now() - interval '61 minutes'", "sqlite": "(unixepoch() - 3660) * 1000000",
			"mariadb": "(UNIX_TIMESTAMP() - 3660) * 1000000",
		}[d.name])
		sweep(2)
	})
}

// race calls insert n times at once and returns how often it succeeded. Else it
// has to be refused.
func race(t testing.TB, n int, refusal error, insert func(i int) error) int64 {
	var stored atomic.Int64
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			switch err := insert(i); {
			case err == nil:
				stored.Add(1)
			case !errors.Is(err, refusal):
				t.Error(err)
			}
		})
	}
	running.Wait()
	return stored.Load()
}

// Of several imports of a token that was erased one succeeds, with a limit of
// keys or without, and none breaks off. One that cannot be stored, since
// another key has its ID, does not remove what the erasure has left: caches may
// yet have to learn of it.
func TestErasedTokenIsStoredOnce(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		other := inserted(t, store, "other", 1)[0]
		for range 20 {
			erased := inserted(t, store, "acme", 1)[0]
			erase(t, store, "acme")
			k := newKey("acme")
			k.ID, k.Digest = other.ID, erased.Digest
			if err := insert(t.Context(), store, k); !errors.Is(err, issuing.ErrExists) {
				t.Errorf("Insert with the ID of another key returned %v, want ErrExists", err)
			}
			if got := lookup(t, store, erased); !errors.Is(got.Refused(), keystore.ErrRevoked) {
				t.Errorf("afterwards Lookup returned %v, want a key that is revoked", got)
			}
			stored := race(t, 8, issuing.ErrExists, func(i int) error {
				k := newKey("acme")
				k.Digest = erased.Digest
				return store.Insert(t.Context(), k, newEntry(k), i%2*10)
			})
			entries, err := store.Audit(t.Context(), "acme", issuing.AuditQuery{Act: "issue"})
			if stored != 1 || len(entries) != 1 || err != nil {
				t.Fatalf("%d were stored with %d entries, %v, want one", stored, len(entries), err)
			}
		}
	})
}

// A sweep of more than one statement removes all that is old.
func TestSweepOfManyEntries(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		db := d.open(t)
		inserted(t, store, "acme", 1)
		for n := 1; n < 1500; n *= 2 {
			execute(t, db, fmt.Sprintf("INSERT INTO sallyport_keys_audit SELECT CONCAT(id, '.%d'), organization, key_id, "+
				"at, act, actor, reason, changes FROM sallyport_keys_audit", n))
		}
		if removed, err := store.SweepAudit(t.Context(), time.Now().Add(time.Hour)); removed != 2048 || err != nil {
			t.Errorf("SweepAudit removed %d, %v, want 2048", removed, err)
		}
	})
}

// The room for keys is counted after the other calls have ended, also where a
// transaction sees what there was when it began.
func TestMaxKeysWithOldSnapshots(t *testing.T) {
	t.Parallel()
	config := pgtest.Schema(t)
	config.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	store := keysql.Postgres(closing(t, stdlib.OpenDB(*config), nil), keysql.Options{})
	migrate(t, store)
	stored := race(t, 20, issuing.ErrTooManyKeys, func(int) error {
		k := newKey("acme")
		return store.Insert(t.Context(), k, newEntry(k), 1)
	})
	if stored != 1 {
		t.Errorf("stored %d keys where one may be", stored)
	}
}
