package issuing_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// grant is one that is valid.
func grant() keystore.Key {
	return keystore.Key{Organization: "acme", Name: "Nightly import", Environment: keystore.Sandbox,
		Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}}
}

// issue issues a key as ada.
func issue(t testing.TB, i *issuing.Issuer, g keystore.Key) (string, *keystore.Key) {
	t.Helper()
	secret, k, err := i.By("ada", "").Issue(t.Context(), g)
	if err != nil {
		t.Fatalf("Issue(%+v) returned %v, want a key", g, err)
	}
	return secret.Reveal(), k
}

// failing is a Store in which some methods fail.
type failing struct {
	issuing.Store
	insert, update, findIssued func() error
}

func (f failing) Insert(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	if f.insert != nil {
		if err := f.insert(); err != nil {
			return err
		}
	}
	return f.Store.Insert(ctx, k, e, maxKeys)
}

func (f failing) Update(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	if f.update != nil {
		if err := f.update(); err != nil {
			return err
		}
	}
	return f.Store.Update(ctx, k, e)
}

func (f failing) FindIssued(ctx context.Context, organization, actor, token string) (*keystore.Key, error) {
	if f.findIssued != nil {
		if err := f.findIssued(); err != nil {
			return nil, err
		}
	}
	return f.Store.FindIssued(ctx, organization, actor, token)
}

var errStoreDown = errors.New("store is down")

func down() error { return errStoreDown }

func TestIssue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, issuer := newIssuer()
		g := grant()
		g.Scopes = append(g.Scopes, scope.TasksRead)
		g.ExpiresAt = time.Now().Add(time.Hour).Add(1500 * time.Nanosecond)
		g.IssueToken = "form-1"
		token, k := issue(t, issuer, g)

		if !regexp.MustCompile(`^key_[0-9a-v]{20}$`).MatchString(k.ID) {
			t.Errorf("ID = %q, want key_ and an xid", k.ID)
		}
		want := keystore.Key{
			ID: k.ID, Digest: keystore.DigestOf(token), Organization: "acme", Environment: keystore.Sandbox,
			Name: "Nightly import", Hint: token[len(token)-4:], CreatedAt: time.Now().UTC().Truncate(time.Microsecond),
			CreatedBy: "ada", ExpiresAt: g.ExpiresAt.UTC().Truncate(time.Microsecond), IssueToken: "form-1", Version: 1,
			Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite},
		}
		stored, err := memory.Lookup(t.Context(), keystore.DigestOf(token))
		must(t, err)
		if got := fmt.Sprintf("%+v", *k); got != fmt.Sprintf("%+v", want) || got != fmt.Sprintf("%+v", *stored) {
			t.Errorf("issued key is %+v, stored %+v, want %+v", k, stored, want)
		}
	})
}

// Nothing that is stored or shown about a key holds five characters of its secret;
// the hint is four.
func TestIssueStoresNoSecret(t *testing.T) {
	memory := issuing.NewMemory()
	token, k := issue(t, issuing.New(memory, issuing.Options{}), grant())
	found, err := memory.Find(t.Context(), k.Organization, k.ID)
	must(t, err)
	text, err := json.Marshal(found)
	must(t, err)
	dump := fmt.Sprintf("%+v %#v %s", found, found, text)
	secret := token[len("svc_test_"):]
	for i := range len(secret) - 4 {
		if strings.Contains(dump, secret[i:i+5]) {
			t.Errorf("the record of a key holds %q of its secret: %s", secret[i:i+5], dump)
		}
	}
}

// Issue refuses what Key.Validate does, for the same reasons.
func TestIssueProblems(t *testing.T) {
	memory, issuer := newIssuer()
	a := strings.Repeat
	for name, c := range map[string]struct {
		spoil  func(g *keystore.Key)
		fields int // that are wrong
	}{
		"valid":      {func(*keystore.Key) {}, 0},
		"no scopes":  {func(g *keystore.Key) { g.Scopes = nil }, 0},
		"longest":    {func(g *keystore.Key) { g.Name, g.IssueToken = a("é", 100), a("a", 255) }, 0},
		"long texts": {func(g *keystore.Key) { g.Organization, g.IssueToken = a("a", 256), a("a", 256) }, 2},
		"unknown":    {func(g *keystore.Key) { g.Scopes = []scope.Name{"task:read", "chat:read", "tasks:*"} }, 2},
		"everything at once": {func(g *keystore.Key) {
			*g = keystore.Key{Name: "\n", Scopes: []scope.Name{"x"}, ExpiresAt: time.Unix(1, 0)}
		}, 5},
	} {
		g := grant()
		c.spoil(&g)
		secret, k, err := issuer.By("ada", "").Issue(t.Context(), g)
		if c.fields == 0 {
			must(t, err)
			continue
		}
		checked, _ := errors.AsType[*keystore.FieldsError](g.Validate(nil))
		issued, _ := errors.AsType[*keystore.FieldsError](err)
		if issued == nil || len(issued.Fields) != c.fields || issued.Error() != checked.Error() ||
			secret.Reveal() != "" || k != nil {
			t.Errorf("%s: Issue returned %v, %v, want %d problems, as Validate has: %v", name, k, err, c.fields, checked)
			continue
		}
		for _, p := range issued.Fields {
			if !strings.HasSuffix(p.Message, ".") && !strings.HasSuffix(p.Message, "?") ||
				!strings.Contains(err.Error(), p.Message) {
				t.Errorf("%s: problem with %s is %q, want a sentence that is part of the error", name, p.Field, p.Message)
			}
		}
	}
	if page, _ := memory.List(t.Context(), "acme", issuing.Query{}); len(page.Keys) != 3 {
		t.Errorf("the store has %d keys, want only the 3 that were valid", len(page.Keys))
	}
}

func TestIssueTwice(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	g := grant()
	g.IssueToken = "form-1"
	var mu sync.Mutex
	var made []*keystore.Key
	existing := make(map[string]bool)
	var clicks sync.WaitGroup
	for range 20 {
		clicks.Go(func() {
			secret, k, err := issuer.By("ada", "").Issue(t.Context(), g)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made = append(made, k)
			case !errors.Is(err, issuing.ErrExists) || k == nil || secret.Reveal() != "":
				t.Errorf("a repeated Issue returned %v and the key %v, want ErrExists, the key and no secret", err, k)
			default:
				existing[k.ID] = true
			}
		})
	}
	clicks.Wait()
	if len(made) != 1 || len(existing) != 1 || !existing[made[0].ID] {
		t.Errorf("20 Issues with one token made %d keys and named %v as existing, want one", len(made), existing)
	}
	if _, _, err := issuer.By("grace", "").Issue(t.Context(), g); err != nil {
		t.Errorf("Issue by another actor with the same token returned %v, want a key", err)
	}
}

func TestIssueWhenTheStoreFails(t *testing.T) {
	memory := issuing.NewMemory()
	g := grant()
	g.IssueToken = "form-1"
	issuer := issuing.New(failing{Store: memory, insert: down}, issuing.Options{})
	if secret, k, err := issuer.By("ada", "").Issue(t.Context(), g); !errors.Is(err, errStoreDown) || k != nil ||
		secret.Reveal() != "" {
		t.Errorf("Issue returned %v and the key %v, want the store's error alone", err, k)
	}
	issue(t, issuing.New(memory, issuing.Options{}), g)
	issuer = issuing.New(failing{Store: memory, findIssued: down}, issuing.Options{})
	if _, k, err := issuer.By("ada", "").Issue(t.Context(), g); !errors.Is(err, errStoreDown) || k != nil {
		t.Errorf("a repeated Issue returned %v and the key %v, want the store's error alone", err, k)
	}
	// An id that is taken is no repeat.
	issuer = issuing.New(failing{Store: memory, insert: func() error { return issuing.ErrExists }}, issuing.Options{})
	if _, k, err := issuer.By("ada", "").Issue(t.Context(), grant()); !errors.Is(err, issuing.ErrExists) || k != nil {
		t.Errorf("Issue, with an id that is taken, returned %v and the key %v, want ErrExists alone", err, k)
	}
}

// The error of an Issuer that lacks the Service of its host says so, and not to
// those who fill in a form.
func TestIssueWithoutTheService(t *testing.T) {
	own := keystore.Service{Scopes: scope.New(scope.Definition{Name: "parcels:write"})}
	store, k := issuing.NewMemory(), grant()
	k.Scopes = []scope.Name{"parcels:read"}
	for _, test := range []struct {
		service keystore.Service
		says    bool
	}{{keystore.Service{}, true}, {own, false}} {
		_, _, err := issuing.New(store, issuing.Options{Service: test.service}).Issue(t.Context(), k)
		invalid, ok := errors.AsType[*keystore.FieldsError](err)
		if !ok || strings.Contains(err.Error(), "the Service of your middleware.Options") != test.says {
			t.Errorf("of the scopes %s: got %v", cmp.Or(test.service.Scopes, scope.Default()), err)
		}
		if ok && strings.Contains(fmt.Sprint(invalid.Fields), "Service") {
			t.Errorf("a form says %v", invalid.Fields)
		}
	}
}
