package issuing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func TestRotateWithOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{TTL: 48 * time.Hour})
		issuer := issuing.New(keys, issuing.Options{})
		g := grant()
		g.ExpiresAt = time.Now().Add(72 * time.Hour)
		oldToken, old := issue(t, issuer, g)
		want(t, keys, keystore.DigestOf(oldToken), nil, "a key that is live")
		time.Sleep(time.Hour)
		rotated := time.Now()
		secret, next, err := issuer.By("grace", "").Rotate(t.Context(), issuing.Rotation{Organization: "acme", ID: old.ID,
			Overlap: 24 * time.Hour})
		if err != nil {
			t.Fatalf("Rotate returned %v, want a key", err)
		}
		if next.ID == old.ID || next.Environment != old.Environment || joined(next) != joined(old) ||
			next.RotatedFrom != old.ID || next.CreatedBy != "grace" || !next.CreatedAt.Equal(rotated) || next.Version != 1 {
			t.Errorf("Rotate of %+v made %+v, want the same but for who made it and when", old, next)
		}
		for _, token := range []string{oldToken, secret.Reveal()} {
			want(t, keys, keystore.DigestOf(token), nil, "during the overlap")
		}
		time.Sleep(24*time.Hour - time.Nanosecond)
		want(t, keys, keystore.DigestOf(oldToken), nil, "1 ns before the end of the overlap")
		time.Sleep(time.Nanosecond)
		want(t, keys, keystore.DigestOf(oldToken), keystore.ErrRevoked, "at the end of the overlap")
		want(t, keys, keystore.DigestOf(secret.Reveal()), nil, "at the end of the overlap")
	})
}

// An end that was set before stays if it is the earlier one.
func TestRotateKeepsTheEarlierEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, issuer := newIssuer()
		start := time.Now()
		for _, c := range []struct{ overlap, want time.Duration }{{2 * time.Hour, 2 * time.Hour},
			{3 * time.Hour, 2 * time.Hour}, {time.Hour, time.Hour}} {
			_, old := issue(t, issuer, grant())
			old.RevokedAt = start.Add(2 * time.Hour)
			must(t, memory.Update(t.Context(), old, entry()))
			_, _, err := rotate(t, issuer, issuing.Rotation{ID: old.ID, Overlap: c.overlap})
			must(t, err)
			got, err := memory.Find(t.Context(), "acme", old.ID)
			if err != nil || !got.RevokedAt.Equal(start.Add(c.want)) {
				t.Errorf("after a rotation with %v the old key ends at %v, want %v", c.overlap, got.RevokedAt, start.Add(c.want))
			}
		}
	})
}

func TestRotateRefusals(t *testing.T) {
	memory, issuer := newIssuer()
	past := time.Now().Add(-time.Hour)
	for id, c := range map[string]struct {
		key  keystore.Key
		want error
	}{
		"revoked":   {keystore.Key{Environment: keystore.Sandbox, RevokedAt: past}, keystore.ErrRevoked},
		"expired":   {keystore.Key{Environment: keystore.Sandbox, ExpiresAt: past}, keystore.ErrExpired},
		"suspended": {keystore.Key{Environment: keystore.Sandbox, Suspended: true}, keystore.ErrSuspended},
		"corrupt":   {keystore.Key{Environment: "staging"}, keystore.ErrCorrupt},
	} {
		c.key.ID, c.key.Organization, c.key.Digest = id, "acme", keystore.DigestOf(id)
		must(t, memory.Insert(t.Context(), &c.key, entry(), 0))
		if secret, k, err := rotate(t, issuer, issuing.Rotation{ID: id, IssueToken: "form-1"}); !errors.Is(err, c.want) ||
			k != nil || secret.Reveal() != "" {
			t.Errorf("Rotate of a key that is %s returned %v and the key %v, want %v alone", id, err, k, c.want)
		}
	}
	_, k := issue(t, issuer, grant())
	_, next, err := issuer.Rotate(t.Context(), issuing.Rotation{Organization: "other", ID: k.ID})
	wantKey(t, next, err, keystore.ErrNotFound, "", "Rotate by another organization")
	var problems *keystore.FieldsError
	r := issuing.Rotation{Organization: "acme", ID: k.ID, Overlap: -1}
	if _, _, err := issuer.By("\xff", "").Rotate(t.Context(), r); !errors.As(err, &problems) || len(problems.Fields) != 2 {
		t.Errorf("Rotate with a bad actor and a negative overlap returned %v, want both problems", err)
	}
	_, _, err = rotate(t, issuer, issuing.Rotation{ID: k.ID, ExpiresAt: time.Now().Add(time.Hour), NeverExpires: true})
	wantField(t, err, "expires_at", "an expiry, and that there is none")
	if page, _ := memory.List(t.Context(), "acme",
		issuing.Query{Status: keystore.Active, Environment: keystore.Sandbox}); len(page.Keys) != 1 {
		t.Errorf("%d keys are active, want only the one that was issued", len(page.Keys))
	}
}

func TestRotateTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, issuer := newIssuer()
		for _, overlap := range []time.Duration{0, time.Hour} {
			_, old := issue(t, issuer, grant())
			r := issuing.Rotation{ID: old.ID, Overlap: overlap, IssueToken: "form-" + old.ID}
			_, next, err := rotate(t, issuer, r)
			must(t, err)
			time.Sleep(time.Minute)
			secret, again, err := rotate(t, issuer, r)
			wantExisting(t, secret, again, err, next.ID, fmt.Sprintf("Rotate, overlap %v, after a minute", overlap))
			got, err := memory.Find(t.Context(), "acme", old.ID)
			if err != nil || !got.RevokedAt.Equal(next.CreatedAt.Add(overlap)) {
				t.Errorf("after a repeated rotation the old key ends at %v, want %v as after the first", got.RevokedAt,
					next.CreatedAt.Add(overlap))
			}
		}
	})
}

// A key has one successor, whoever rotates it and however often.
func TestRotateOnce(t *testing.T) {
	for name, token := range map[string]func(id string, n int) string{
		"without a token":     func(string, int) string { return "" },
		"each with its token": func(id string, n int) string { return fmt.Sprint(id, n) },
		"two with each token": func(id string, n int) string { return fmt.Sprint(id, n/2) },
		"all with the same":   func(id string, _ int) string { return id },
	} {
		t.Run(name, func(t *testing.T) {
			_, issuer := newIssuer()
			for range 20 {
				_, old := issue(t, issuer, grant())
				var made, refused atomic.Int64
				start := make(chan struct{})
				var admins sync.WaitGroup
				for n := range 8 {
					admins.Go(func() {
						<-start
						secret, _, err := issuer.By(fmt.Sprint("admin-", n/2), "").Rotate(t.Context(),
							issuing.Rotation{Organization: "acme", ID: old.ID, Overlap: time.Hour, IssueToken: token(old.ID, n)})
						switch {
						case err == nil && secret.Reveal() != "":
							made.Add(1)
						case secret.Reveal() == "" && (errors.Is(err, issuing.ErrRotated) || errors.Is(err, issuing.ErrExists)):
							refused.Add(1)
						default:
							t.Errorf("Rotate returned %v", err)
						}
					})
				}
				close(start)
				admins.Wait()
				if made.Load() != 1 || refused.Load() != 7 {
					t.Errorf("of 8 rotations of one key %d made a key and %d were refused, want 1 and 7", made.Load(), refused.Load())
				}
				_, _, err := issuer.By("late", "").Rotate(t.Context(), issuing.Rotation{Organization: "acme", ID: old.ID,
					IssueToken: "late" + old.ID})
				if !errors.Is(err, issuing.ErrRotated) || !strings.Contains(err.Error(), "issue a new key") {
					t.Errorf("a later rotation returned %v, want ErrRotated with what to do", err)
				}
			}
		})
	}
}

// A token that made another key rotates nothing.
func TestRotateWithATokenOfAnotherKey(t *testing.T) {
	keys := issuing.NewMemory()
	issuer := issuing.New(keys, issuing.Options{})
	g := grant()
	g.IssueToken = "form-1"
	_, other := issue(t, issuer, g)
	token, k := issue(t, issuer, grant())
	secret, got, err := rotate(t, issuer, issuing.Rotation{ID: k.ID, IssueToken: "form-1"})
	wantExisting(t, secret, got, err, other.ID, "the key that the token made")
	want(t, keys, keystore.DigestOf(token), nil, "a key that was not rotated")
}

// The new key was stored and revoking the old one failed: the secret must not
// be lost, and a repeat finishes the work as if it had been done at first.
func TestRotateHalfDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := issuing.NewMemory()
		oldToken, old := issue(t, issuing.New(memory, issuing.Options{}), grant())
		half := issuing.New(failing{Store: memory, update: down}, issuing.Options{})
		r := issuing.Rotation{ID: old.ID, Overlap: time.Hour, IssueToken: "form-1"}
		secret, next, err := rotate(t, half, r)
		if !errors.Is(err, errStoreDown) || next == nil || secret.Reveal() == "" {
			t.Fatalf("Rotate, unable to revoke, returned %v and the key %v, want the error, the key and its secret", err, next)
		}
		for _, token := range []string{oldToken, secret.Reveal()} {
			want(t, memory, keystore.DigestOf(token), nil, "after half a rotation")
		}
		none, again, err := rotate(t, half, r)
		if wantKey(t, again, err, errStoreDown, next.ID, "a repeat that cannot revoke either"); none.Reveal() != "" {
			t.Error("a repeat has a secret")
		}
		time.Sleep(time.Hour - time.Nanosecond)
		whole := issuing.New(memory, issuing.Options{})
		none, again, err = rotate(t, whole, r)
		wantExisting(t, none, again, err, next.ID, "a repeat")
		want(t, memory, keystore.DigestOf(oldToken), nil, "1 ns before the end of the overlap")
		time.Sleep(time.Nanosecond)
		want(t, memory, keystore.DigestOf(oldToken), keystore.ErrRevoked, "an hour after the first call")
		if entries, err := whole.Audit(t.Context(), "acme", issuing.AuditQuery{Key: old.ID}); err != nil ||
			entries[0].Act != "revoke" || entries[0].Reason != issuing.ReasonRotated {
			t.Errorf("the audit of the old key ends with %+v, %v, want a revocation for the rotation", entries, err)
		}
	})
}

// An Edit between reading the old key and revoking it holds for the new key:
// its secret comes after that, or not at all. An expiry that is given stays.
func TestRotateBesideAnEdit(t *testing.T) {
	soon := time.Now().Add(time.Hour).Round(time.Second) // once: the clock may go on to another second
	renewed := soon.Add(47 * time.Hour)
	for name, change := range map[string]func(k *keystore.Key){
		"name":       func(k *keystore.Key) { k.Name = "Hourly" },
		"scopes":     func(k *keystore.Key) { k.Scopes = []scope.Name{scope.TasksRead} },
		"attributes": func(k *keystore.Key) { k.Attributes = map[string]string{"plan": "free"} },
		"networks":   func(k *keystore.Key) { k.Networks = prefixes("192.0.2.0/24") },
		"expires_at": func(k *keystore.Key) { k.ExpiresAt = soon },
		"suspended":  suspended,
		"renewed":    func(k *keystore.Key) { k.Name, k.ExpiresAt = "Hourly", soon },
	} {
		var expires time.Time
		if name == "renewed" {
			expires = renewed
		}
		memory := issuing.NewMemory()
		editor := issuing.New(memory, issuing.Options{})
		for _, broken := range []bool{false, true} {
			_, old := issue(t, editor, grant())
			updates := 0
			issuer := issuing.New(failing{Store: memory, insert: func() error {
				k := old.Clone()
				change(k)
				_, err := editor.Edit(t.Context(), *k)
				return err
			}, update: func() error {
				if updates++; broken && updates == 2 {
					return errStoreDown
				}
				return nil
			}}, issuing.Options{})
			secret, next, err := rotate(t, issuer, issuing.Rotation{ID: old.ID, Overlap: time.Hour, ExpiresAt: expires})
			if next == nil || broken != errors.Is(err, errStoreDown) || broken != (secret.Reveal() == "") {
				t.Fatalf("%s: Rotate returned %v, %v; the second update fails: %t", name, next, err, broken)
			}
			if broken {
				continue
			}
			got, err := memory.Find(t.Context(), "acme", next.ID)
			if err != nil || got.Version != next.Version {
				t.Fatalf("%s: Rotate returned %+v, and the store has %+v, %v", name, next, got, err)
			}
			want := old.Clone()
			if change(want); !expires.IsZero() {
				want.ExpiresAt = expires
			}
			if joined(got) != joined(want) {
				t.Errorf("%s: Rotate made %+v of a key that is %+v now", name, got, want)
			}
		}
	}
}

// What is edited in the old key after a rotation that could not end it holds for
// the new key once a repeat has: its secret may be in use, or in a file. A new key
// that was edited by itself stays as it is.
func TestRotateAgainAfterAnEdit(t *testing.T) {
	for name, r := range map[string]issuing.Rotation{"IssueToken": {IssueToken: "form-1"},
		"Token": {Token: sync.OnceValue(sandboxToken)}} {
		for _, edited := range []bool{false, true} {
			memory, issuer := newIssuer()
			_, old := issue(t, issuer, grant())
			r.ID, r.Organization, r.Overlap = old.ID, "acme", time.Hour
			breaks := issuing.New(failing{Store: memory, update: down}, issuing.Options{})
			first := r
			first.ExpiresAt = time.Now().Add(time.Hour) // which a repeat without it leaves
			_, next, err := breaks.Rotate(t.Context(), first)
			wantKey(t, next, err, errStoreDown, next.ID, "Rotate, unable to revoke")
			want := suspendedReader
			if edited {
				want = func(k *keystore.Key) { k.Name = "Hourly" }
				_, err = edit(t, issuer, "acme", next.ID, want)
				must(t, err)
			}
			_, err = edit(t, issuer, "acme", old.ID, suspendedReader)
			must(t, err)
			if _, _, err := breaks.Rotate(t.Context(), r); !errors.Is(err, errStoreDown) {
				t.Errorf("%s: a repeat that fails returned %v", name, err)
			}
			secret, again, err := issuer.Rotate(t.Context(), r)
			wantExisting(t, secret, again, err, next.ID, "a repeat")
			got, err := memory.Find(t.Context(), "acme", next.ID)
			must(t, err)
			want(next)
			if joined(got) != joined(next) {
				t.Errorf("%s, the new key edited %t: a repeat left %+v, want %+v", name, edited, got, next)
			}
			if ended, err := memory.Find(t.Context(), "acme", old.ID); err != nil || ended.RevokedAt.IsZero() {
				t.Errorf("%s: a repeat left the old key %+v, %v, want it to end", name, ended, err)
			}
		}
	}
}

func suspendedReader(k *keystore.Key) { k.Suspended, k.Scopes = true, []scope.Name{scope.TasksRead} }

func TestRotateWhenTheStoreFails(t *testing.T) {
	memory := issuing.NewMemory()
	token, old := issue(t, issuing.New(memory, issuing.Options{}), grant())
	for name, store := range map[string]issuing.Store{
		"insert":     failing{Store: memory, insert: down},
		"findIssued": failing{Store: memory, findIssued: down},
		"list":       unlisted{memory}, // how many old keys still work
	} {
		secret, k, err := rotate(t, issuing.New(store, issuing.Options{MaxKeys: 2}),
			issuing.Rotation{ID: old.ID, IssueToken: "form-1", Overlap: time.Hour})
		if wantKey(t, k, err, errStoreDown, "", "Rotate with a failing "+name); secret.Reveal() != "" {
			t.Errorf("Rotate with a failing %s has a secret", name)
		}
	}
	want(t, memory, keystore.DigestOf(token), nil, "after a rotation that made no key")
}

// unlisted cannot list keys.
type unlisted struct{ issuing.Store }

func (unlisted) List(context.Context, string, issuing.Query) (issuing.Listing, error) {
	return issuing.Listing{}, errStoreDown
}

// A token that the caller has kept is that of the successor, by whoever and
// however often the rotation is repeated.
func TestRotateToAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, issuer := newIssuer()
		oldToken, old := issue(t, issuer, grant())
		token := sandboxToken()
		r := issuing.Rotation{ID: old.ID, Overlap: time.Hour, Token: func() string { return token }}
		half := issuing.New(failing{Store: memory, update: down}, issuing.Options{})
		secret, next, err := rotate(t, half, r)
		if wantKey(t, next, err, errStoreDown, next.ID, "Rotate, unable to revoke"); secret.Reveal() != "" ||
			next.Digest != keystore.DigestOf(token) || next.Hint != token[len(token)-4:] || next.RotatedFrom != old.ID {
			t.Errorf("got %+v, want the successor with the token, and no secret", next)
		}
		want(t, memory, keystore.DigestOf(token), nil, "the token that was kept")
		time.Sleep(time.Minute)
		r.Organization = "acme"
		for _, actor := range []string{"bob", "ada", "bob"} { // the first one ends the old key
			secret, again, err := issuer.By(actor, "").Rotate(t.Context(), r)
			wantExisting(t, secret, again, err, next.ID, "a repeat by "+actor)
			r.Overlap = time.Minute
		}
		time.Sleep(59*time.Minute - time.Nanosecond)
		want(t, memory, keystore.DigestOf(oldToken), nil, "1 ns before the end of the overlap")
		time.Sleep(time.Nanosecond)
		want(t, memory, keystore.DigestOf(oldToken), keystore.ErrRevoked, "at the end of the overlap")
		r.Token = func() string { return sandboxToken() }
		if _, _, err := issuer.Rotate(t.Context(), r); !errors.Is(err, keystore.ErrRevoked) {
			t.Errorf("Rotate of the old key to another token returned %v, want ErrRevoked", err)
		}
	})
}

// A token that is no new one of the old key's environment makes no key.
func TestRotateToAnotherToken(t *testing.T) {
	memory, issuer := newIssuer()
	oldToken, old := issue(t, issuer, grant())
	taken, _ := issue(t, issuer, grant())
	g := grant()
	g.Organization = "other"
	foreign, _ := issue(t, issuer, g)
	child := keystore.Service{}.Generate(keystore.Sandbox, old).Reveal()
	for name, c := range map[string]struct{ token, field string }{
		"malformed":               {"svc_test_cut", ""},
		"of production":           {keystore.Service{}.Generate(keystore.Production).Reveal(), "token"},
		"of a child":              {child, "token"},
		"of another key":          {taken, "token"},
		"of another organization": {foreign, ""},
	} {
		secret, k, err := rotate(t, issuer, issuing.Rotation{ID: old.ID, Token: func() string { return c.token }})
		if c.field != "" {
			wantField(t, err, c.field, "a token "+name)
		}
		if err == nil || secret.Reveal() != "" || k != nil {
			t.Errorf("a token %s: Rotate returned %v and %v, want an error and no new key", name, err, k)
		}
	}
	want(t, memory, keystore.DigestOf(oldToken), nil, "after rotations that made no key")
}

// Of two rotations with one token at once, the later finds the earlier's key.
func TestRotateTwiceAtOnce(t *testing.T) {
	token := sandboxToken()
	for name, r := range map[string]issuing.Rotation{"IssueToken": {IssueToken: "form-1"},
		"Token": {Token: func() string { return token }}} {
		memory, issuer := newIssuer()
		_, old := issue(t, issuer, grant())
		r.ID, r.Overlap = old.ID, time.Hour
		made := ""
		late := issuing.New(failing{Store: memory, insert: func() error {
			_, next, err := rotate(t, issuer, r)
			made = next.ID
			return err
		}}, issuing.Options{})
		secret, again, err := rotate(t, late, r)
		wantExisting(t, secret, again, err, made, "the later Rotate with one "+name)
	}
}
