package issuing_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
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
	return keystore.Key{
		Organization: "acme",
		Name:         "Nightly import",
		Environment:  keystore.Sandbox,
		Scopes:       []scope.Name{scope.TasksRead, scope.TasksWrite},
	}
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
		for _, got := range []func() (*keystore.Key, error){
			func() (*keystore.Key, error) { return k, nil },
			func() (*keystore.Key, error) { return memory.Lookup(t.Context(), keystore.DigestOf(token)) },
			func() (*keystore.Key, error) { return memory.Find(t.Context(), "acme", k.ID) },
		} {
			got, err := got()
			if err != nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", want) {
				t.Errorf("issued key is %+v, %v, want %+v", got, err, want)
			}
		}
	})
}

// Nothing that is stored or shown about a key holds eight characters of its
// secret; the hint is four.
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
	if len(found.Hint) != 4 || !strings.HasSuffix(token, found.Hint) {
		t.Errorf("Hint = %q, want the last four characters of %q", found.Hint, token)
	}
}

// What else is wrong with a field Key.Validate says, and TestValidateJudgesAsIssueDoes
// that Issue says the same.
func TestIssueProblems(t *testing.T) {
	memory, issuer := newIssuer()
	for name, c := range map[string]struct {
		spoil  func(g *keystore.Key)
		fields []string
	}{
		"valid":     {func(g *keystore.Key) {}, nil},
		"no scopes": {func(g *keystore.Key) { g.Scopes = nil }, nil},
		"longest": {func(g *keystore.Key) {
			g.Name, g.IssueToken = strings.Repeat("é", 100), strings.Repeat("a", 255)
		}, nil},
		"long texts": {func(g *keystore.Key) {
			g.Organization, g.IssueToken = strings.Repeat("a", 256), strings.Repeat("a", 256)
		}, []string{"organization", "issue_token"}},
		"unknown scopes": {func(g *keystore.Key) { g.Scopes = []scope.Name{"task:read", "chat:read", "tasks:*"} },
			[]string{"scopes", "scopes"}},
		"everything at once": {func(g *keystore.Key) {
			*g = keystore.Key{Name: "\n", Scopes: []scope.Name{"x"}, ExpiresAt: time.Unix(1, 0)}
		}, []string{"organization", "name", "environment", "scopes", "expires_at"}},
	} {
		g := grant()
		c.spoil(&g)
		secret, k, err := issuer.By("ada", "").Issue(t.Context(), g)
		var problems *keystore.FieldsError
		if errors.As(err, &problems) != (c.fields != nil) {
			t.Errorf("%s: Issue returned %v, want problems with %q", name, err, c.fields)
			continue
		}
		if problems == nil {
			continue
		}
		var fields []string
		for _, p := range problems.Fields {
			fields = append(fields, p.Field)
			if !strings.HasSuffix(p.Message, ".") && !strings.HasSuffix(p.Message, "?") ||
				!strings.Contains(err.Error(), p.Message) {
				t.Errorf("%s: problem with %s is %q, want a sentence that is part of the error", name, p.Field,
					p.Message)
			}
		}
		if !slices.Equal(fields, c.fields) || secret.Reveal() != "" || k != nil {
			t.Errorf("%s: Issue found problems with %q and returned the key %v, want %q and none", name, fields, k,
				c.fields)
		}
	}
	if page, _ := memory.List(t.Context(), "acme", issuing.Query{}); len(page.Keys) != 3 {
		t.Errorf("the store has %d keys, want only the 3 that were valid", len(page.Keys))
	}
}

func TestIssueInOtherRegistry(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{
		Service: keystore.Service{Prefix: "acme", Scopes: scope.New(scope.Definition{Name: "billing:read"})},
	})
	g := grant()
	g.Scopes = []scope.Name{"billing:read"}
	if token, _ := issue(t, issuer, g); !strings.HasPrefix(token, "acme_test_") {
		t.Errorf("issued %q, want the issuer's prefix", token)
	}
	g.Scopes = []scope.Name{scope.TasksRead}
	if _, _, err := issuer.Issue(t.Context(), g); err == nil {
		t.Error("a scope of the contract was granted by a registry that does not have it")
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
	issuer = issuing.New(failing{Store: memory, insert: func() error { return issuing.ErrExists }},
		issuing.Options{})
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
