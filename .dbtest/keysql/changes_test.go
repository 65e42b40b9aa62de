package keysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// changesPage is how many digests one call of Changes returns at most.
const changesPage = 1000

// changes returns what the feed names until it has no more, as a cache reads
// it.
func changes(t testing.TB, s *keysql.Store, since string) (changed []keystore.Digest, next string) {
	t.Helper()
	for range 100 {
		page, next, err := s.Changes(t.Context(), since)
		if err != nil {
			t.Fatalf("Changes(%q) returned %v", since, err)
		}
		if len(page) > changesPage {
			t.Errorf("Changes returned %d digests at once, want at most %d", len(page), changesPage)
		}
		changed = append(changed, page...)
		if len(page) == 0 || next == since {
			return changed, next
		}
		since = next
	}
	t.Fatal("Changes has more and more to say of changes that are over, want an end")
	return nil, ""
}

// present returns a position from which the feed names nothing that is there.
// In Postgres it waits for the transactions of other tests, which make the feed
// name again what was changed or inserted since they began.
func present(t testing.TB, s *keysql.Store) string {
	t.Helper()
	_, next, err := s.Changes(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the feed goes on naming a change that is over", func() bool {
		var changed []keystore.Digest
		changed, next = changes(t, s, next)
		return len(changed) == 0
	})
	return next
}

func wantNamed(t testing.TB, changed []keystore.Digest, k *keystore.Key, rule string) {
	t.Helper()
	if !slices.Contains(changed, k.Digest) {
		t.Errorf("%s: the feed named %d keys and not this one", rule, len(changed))
	}
}

// The order that loses changes where numbers are taken for an order: a
// transaction takes its number, another one takes the next and commits, a
// reader sees that, and only then the first one commits.
func TestFeedLateCommit(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	store := d.store(t)
	keys := inserted(t, store, "acme", 2)
	early, late := keys[0], keys[1]
	start := present(t, store)

	tx := begun(t, d.open(t))
	execute(t, tx, "UPDATE sallyport_keys SET suspended = true WHERE id = '"+late.ID+"'")
	execute(t, tx, seeding(d, "late", 1))
	update(t, store, early)
	changed, next := changes(t, store, start)
	wantNamed(t, changed, early, "a change that was committed while an older transaction was open")
	if slices.Contains(changed, late.Digest) || slices.Contains(changed, seeded("late", 1)) {
		t.Error("the feed named a change that was not committed")
	}
	// A reader that comes while nothing has happened must not move on either.
	_, next = changes(t, store, next)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	changed, _ = changes(t, store, next)
	wantNamed(t, changed, late, "a change that was committed after a reader had seen later ones")
	wantNamed(t, changed, &keystore.Key{Digest: seeded("late", 1)}, "a key that was inserted by that transaction")
}

// Amazon Aurora refuses to name the end of its log.
func TestFeedOnAurora(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	for _, f := range []string{"pg_current_wal_lsn", "pg_current_wal_insert_lsn", "pg_current_wal_flush_lsn",
		"pg_last_wal_replay_lsn"} {
		execute(t, d.open(t), "CREATE FUNCTION "+f+"() RETURNS pg_lsn LANGUAGE plpgsql AS $$ BEGIN RAISE '"+f+
			"() is not supported in Aurora' USING ERRCODE = '0A000'; END $$")
	}
	db := d.open(t)
	db.SetMaxOpenConns(1)
	// Else pg_catalog comes first.
	execute(t, db, "SELECT set_config('search_path', current_schema() || ', pg_catalog', false)")
	if err := db.QueryRowContext(t.Context(), "SELECT pg_current_wal_lsn()").Err(); err == nil {
		t.Fatal("the functions of the catalog are not hidden")
	}
	store := d.wrap(db, keysql.Options{})
	start := present(t, store)
	k := inserted(t, store, "acme", 1)[0]
	changed, _ := changes(t, store, start)
	wantNamed(t, changed, k, "a key on Aurora")
}

// In MariaDB one snapshot may have a change and not the one before it. So the
// number that a round ends with comes from a snapshot before that of its
// changes, and what is committed between the two is not passed over.
func TestFeedReadsTheCounterFirst(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	store := d.store(t)
	keys := inserted(t, store, "acme", 2)
	first, second := keys[0], keys[1]
	start := present(t, store)
	update(t, store, first)

	statements := 0
	reader := d.breaking(t, func(what string) error {
		if what == sqltest.Row {
			return nil
		}
		if statements++; statements == 2 {
			update(t, store, second)
		}
		return nil
	})
	changed, next, err := d.wrap(reader, keysql.Options{}).Changes(t.Context(), start)
	if err != nil || statements != 2 {
		t.Fatalf("got %v after %d statements, want two statements", err, statements)
	}
	wantNamed(t, changed, first, "a change that was committed before")
	more, _ := changes(t, store, next)
	wantNamed(t, append(changed, more...), second, "a change that was committed between the statements")
}

// A change is named again only while an older transaction is open, which in
// Postgres can be that of another test.
func TestFeedQuiet(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		start := present(t, store)
		update(t, store, inserted(t, store, "acme", 1)[0])
		if _, next, err := store.Changes(t.Context(), start); err != nil || strings.Contains(next, "horizon") {
			t.Errorf("after a round of one page: got %q, error %v, want a position between rounds", next, err)
		}
		changed, next := changes(t, store, start)
		eventually(t, "the feed goes on naming a change that is over", func() bool {
			changed, next = changes(t, store, next)
			return len(changed) == 0
		})
	})
}

// A bulk change has one number for all its keys in Postgres, and is read in
// pages. What commits between two pages must not fall between them.
func TestFeedPages(t *testing.T) {
	const many = changesPage + 200
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		db := d.open(t)
		late := inserted(t, store, "acme", 1)[0]
		seed(t, d, "bulk", many)
		start := present(t, store)

		var commit func() error
		if d.name == "postgres" {
			tx := begun(t, db)
			execute(t, tx, "UPDATE sallyport_keys SET suspended = true WHERE id = '"+late.ID+"'")
			commit = tx.Commit
		}
		execute(t, db, "UPDATE sallyport_keys SET suspended = true WHERE organization = 'bulk'")
		first, next, err := store.Changes(t.Context(), start)
		if err != nil || len(first) != changesPage {
			t.Fatalf("the first page has %d digests (%v), want %d", len(first), err, changesPage)
		}
		rest, next := changes(t, store, next)
		wantAll(t, append(first, rest...), many)
		if commit != nil {
			// Until the transaction ends, each round names all of it, and ends.
			rest, next = changes(t, store, next)
			wantAll(t, rest, many)
		}
		execute(t, db, "UPDATE sallyport_keys SET suspended = false WHERE organization = 'bulk'")
		if first, next, err = store.Changes(t.Context(), next); err != nil || len(first) != changesPage {
			t.Fatalf("the first page has %d digests (%v), want %d", len(first), err, changesPage)
		}
		if commit == nil {
			update(t, store, late)
		} else if err := commit(); err != nil {
			t.Fatal(err)
		}
		rest, next = changes(t, store, next)
		wantAll(t, append(first, rest...), many, late)
		following, _ := changes(t, store, next)
		wantNamed(t, append(rest, following...), late, "a change that was committed between pages")
	})
}

// wantAll checks that so many keys were named, besides some that may be.
func wantAll(t testing.TB, changed []keystore.Digest, want int, besides ...*keystore.Key) {
	t.Helper()
	named := make(map[keystore.Digest]bool)
	for _, d := range changed {
		named[d] = true
	}
	for _, k := range besides {
		delete(named, k.Digest)
	}
	if len(named) != want {
		t.Errorf("the feed named %d keys of a bulk change, want %d", len(named), want)
	}
}

// What a person inserts or changes with the database's own client, or a server
// of an earlier version, reaches caches too. No program that has read the key
// before undoes it.
func TestChangedByHand(t *testing.T) {
	now := map[string]string{"postgres": "now()", "sqlite": "unixepoch() * 1000000",
		"mariadb": "UNIX_TIMESTAMP() * 1000000"}
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		start := present(t, store)
		seed(t, d, "other", 3)
		changed, _ := changes(t, store, start)
		for i := range 3 {
			wantNamed(t, changed, &keystore.Key{Digest: seeded("other", i+1)}, "a key that was inserted by hand")
		}
		for _, set := range []string{"revoked_at = " + now[d.name], `attributes = '{"plan":"free"}'`,
			`networks = '["192.0.2.0/24"]'`, "legacy = 'v1'"} {
			k := inserted(t, store, "acme", 1)[0]
			start := present(t, store)
			execute(t, d.open(t), "UPDATE sallyport_keys SET "+set+" WHERE id = '"+k.ID+"'")
			changed, _ := changes(t, store, start)
			wantNamed(t, changed, k, set)
			k.Name = "renamed"
			if err := store.Update(t.Context(), k, newEntry(k)); err != issuing.ErrConflict {
				t.Errorf("Update of a key that was read before %s returned %v, want %v", set, err, issuing.ErrConflict)
			}
			status := lookup(t, store, k).Status(time.Now().Add(time.Second))
			if revoked := strings.HasPrefix(set, "revoked"); revoked != (status == keystore.Revoked) {
				t.Errorf("a key after %s is %s", set, status)
			}
		}
	})
}

func TestFeedKnowsItsPositions(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		for _, position := range []string{"x", "1", `{"changed":"1"}`, `{"changed":1,"digest":null}`,
			`{"changed":9223372036854775807}`, `[]`} {
			if _, _, err := store.Changes(t.Context(), position); err != keystore.ErrNotFound {
				t.Errorf("Changes(%q) returned %v, want %v", position, err, keystore.ErrNotFound)
			}
		}
		// A position of a database whose last changes were lost with a failover.
		var at struct{ Changed int64 }
		if err := json.Unmarshal([]byte(present(t, store)), &at); err != nil {
			t.Fatal(err)
		}
		ahead := fmt.Sprintf(`{"changed":%d}`, at.Changed+1_000_000)
		if _, _, err := store.Changes(t.Context(), ahead); err != keystore.ErrNotFound {
			t.Errorf("Changes from a position that has not been reached returned %v, want %v", err, keystore.ErrNotFound)
		}
	})
}

// Rows from a dump carry the numbers of the server they come from, which can be
// far ahead. They are not news, and do not hide any. What is deleted does not
// give its number to another change.
func TestFeedAfterRestore(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		keys := inserted(t, store, "acme", 2)
		execute(t, d.open(t), "UPDATE sallyport_keys SET changed = 9000000000000000000 WHERE id = '"+keys[0].ID+"'")
		start := present(t, store)
		update(t, store, keys[1])
		changed, next := changes(t, store, start)
		wantNamed(t, changed, keys[1], "a change after a restore")
		if slices.Contains(changed, keys[0].Digest) {
			t.Error("the feed named a key that was changed on another server")
		}
		update(t, store, keys[0])
		changed, _ = changes(t, store, next)
		wantNamed(t, changed, keys[0], "a change of a key that was restored")

		start = present(t, store)
		execute(t, d.open(t), "DELETE FROM sallyport_keys WHERE id = '"+keys[0].ID+"'")
		keys[1].Version++
		update(t, store, keys[1])
		changed, _ = changes(t, store, start)
		wantNamed(t, changed, keys[1], "a change after the key that changed last was deleted")
	})
}

// TestPromotedReplica: a replica that was promoted counts its changes from an
// earlier number than the primary had reached. A position of the primary is
// then unknown to it, however many transactions follow, so that caches forget
// all.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	primary, replica := pgtest.NewServer(t), pgtest.NewServer(t)
	primary.Start()
	db := primary.Open()
	store := keysql.Postgres(db, keysql.Options{})
	migrate(t, store)
	k := inserted(t, store, "acme", 1)[0]
	replica.Run("pg_basebackup", "-D", replica.Data(), "-R", "-c", "fast", "--no-sync", "-h", primary.Dir, "-U",
		"postgres")
	spendTransactions(t, db, 50) // which the replica never gets
	position := present(t, store)
	db.Close()
	primary.Kill()

	replica.Start()
	db = replica.Open()
	execute(t, db, "SELECT pg_promote(wait_seconds => 600)")
	store = keysql.Postgres(db, keysql.Options{})
	k.RevokedAt = time.Now()
	update(t, store, k)
	spendTransactions(t, db, 200)
	if _, _, err := store.Changes(t.Context(), position); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("a position of the primary on the promoted replica: got %v, want ErrNotFound", err)
	}
	since := present(t, store)
	spendTransactions(t, db, 10)
	if _, _, err := store.Changes(t.Context(), since); err != nil {
		t.Errorf("a position of its own: got %v", err)
	}
	// A crash may lose the last numbers too.
	replica.Kill()
	replica.Start()
	db = replica.Open()
	spendTransactions(t, db, 200)
	store = keysql.Postgres(db, keysql.Options{})
	if _, _, err := store.Changes(t.Context(), since); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("a position of before a crash: got %v, want ErrNotFound", err)
	}
}

// spendTransactions makes the numbers of transactions grow.
func spendTransactions(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for range n {
		execute(t, db, "SELECT pg_current_xact_id()")
	}
}

// servers returns the caches of two servers, each with a pool of its own. B
// reads the feed. Without it B would learn of what A writes after an hour.
func servers(t *testing.T, d database) (a, b *keystore.Cached) {
	t.Helper()
	cached := func() *keystore.Cached {
		return keystore.NewCached(d.store(t), keystore.CacheOptions{
			TTL: time.Hour, NegativeTTL: time.Hour, FeedInterval: 20 * time.Millisecond, Timeout: time.Minute,
		})
	}
	a, b = cached(), cached()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	})
	eventually(t, "the feed of server B never answered", func() bool { return b.Stats().MaxStaleness < time.Hour })
	return a, b
}

// issuedOn returns a new key of acme and its digest, both known to server b.
func issuedOn(t *testing.T, issuer *issuing.Issuer, b *keystore.Cached) (*keystore.Key, keystore.Digest) {
	t.Helper()
	secret, k, err := issuer.Issue(t.Context(), keystore.Key{Organization: "acme", Environment: keystore.Production})
	if err != nil {
		t.Fatal(err)
	}
	token := keystore.DigestOf(secret.Reveal())
	if got, err := b.Lookup(t.Context(), token); err != nil || got.Refused() != nil {
		t.Fatalf("server B does not know a new key: %v", err)
	}
	return k, token
}

// What one server revokes dies on the other with its next question to the feed,
// and not only after its TTL. The tests of keystore hold the bound that the
// other states.
func TestRevokedOnAnotherServer(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		a, b := servers(t, d)
		issuer := issuing.New(a, issuing.Options{})
		for range 5 {
			k, token := issuedOn(t, issuer, b)
			if _, err := issuer.Revoke(t.Context(), "acme", k.ID); err != nil {
				t.Fatal(err)
			}
			revoked := time.Now()
			eventually(t, "server B never noticed the revocation", func() bool {
				got, err := b.Lookup(t.Context(), token)
				if err != nil {
					t.Fatal(err)
				}
				return errors.Is(got.Refused(), keystore.ErrRevoked)
			})
			t.Logf("refused after %v", time.Since(revoked))
		}
	})
}

// A key that one server makes is known to the other with its next question to
// the feed, also when that one was asked for it too early. It does not matter
// how the key is made.
func TestInsertedOnAnotherServer(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		_, b := servers(t, d)
		issuer := issuing.New(askedBefore{d.store(t), t, b}, issuing.Options{
			Service: keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}}},
		})
		grant := keystore.Key{Organization: "acme", Environment: keystore.Production}
		_, issued, err := issuer.Issue(t.Context(), grant)
		if err != nil {
			t.Fatal(err)
		}
		_, rotated, err := issuer.By("user_1", "").Rotate(t.Context(), issuing.Rotation{Organization: "acme", ID: issued.ID})
		if err != nil {
			t.Fatal(err)
		}
		imported, err := issuer.Import(t.Context(), grant, "acme_"+rand.Text())
		grant.Digest, grant.Legacy = keystore.DigestOf("acme_"+rand.Text()), "v1"
		byDigest, digestErr := issuer.Import(t.Context(), grant, "")
		if err := errors.Join(err, digestErr); err != nil {
			t.Fatal(err)
		}
		for name, k := range map[string]*keystore.Key{"issued": issued, "rotated": rotated, "imported": imported,
			"imported by digest": byDigest} {
			eventually(t, "server B never learned of a key that was "+name, func() bool {
				_, err := b.Lookup(t.Context(), k.Digest)
				if err != nil && !errors.Is(err, keystore.ErrNotFound) {
					t.Fatal(err)
				}
				return err == nil
			})
		}
	})
}

// askedBefore asks another server for each key before it is there.
type askedBefore struct {
	issuing.Store
	t     *testing.T
	other *keystore.Cached
}

func (m askedBefore) Insert(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	if _, err := m.other.Lookup(ctx, k.Digest); !errors.Is(err, keystore.ErrNotFound) {
		m.t.Errorf("Lookup of a key that is not there yet returned %v, want %v", err, keystore.ErrNotFound)
	}
	return m.Store.Insert(ctx, k, e, maxKeys)
}
