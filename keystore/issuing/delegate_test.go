package issuing_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// delegation returns what a child of the key is made of.
func delegation(parent *keystore.Key) keystore.Key {
	life := time.Minute - 10*time.Second*time.Duration(len(parent.Ancestors)) // no longer than the parent's
	return keystore.Key{Organization: parent.Organization, Parent: parent.ID, Name: "run 7",
		Scopes: []scope.Name{scope.TasksRead}, ExpiresAt: time.Now().Add(life)}
}

func delegate(t testing.TB, i *issuing.Issuer, k keystore.Key) (string, *keystore.Key) {
	t.Helper()
	secret, child, err := i.Delegate(t.Context(), k)
	if err != nil {
		t.Fatalf("Delegate(%+v) returned %v, want a key", k, err)
	}
	return secret.Reveal(), child
}

func TestDelegate(t *testing.T) {
	keys, issuer := issuing.InMemory(keystore.Service{})
	_, parent := issue(t, issuer, grant())
	token, child := delegate(t, issuer, delegation(parent))
	parsed, err := issuer.Service().Parse(token)
	if err != nil || !parsed.Child || child.Digest != keystore.DigestOf(token) ||
		child.Environment != parent.Environment ||
		child.Parent != parent.ID || child.CreatedBy != parent.ID || child.Refused() != nil {
		t.Fatalf("got %+v, %v, want a child's", child, err)
	}
	found, err := issuer.KeyOf(t.Context(), token)
	if err != nil || found.ID != child.ID {
		t.Errorf("KeyOf returned %v, %v, want the child", found, err)
	}
	entries, err := issuer.Audit(t.Context(), "acme", issuing.AuditQuery{Key: child.ID})
	if err != nil || len(entries) != 1 || entries[0].Act != "delegate" || entries[0].Actor != parent.ID ||
		!slices.Contains(entries[0].Changes, issuing.Change{Field: "parent", After: parent.ID}) {
		t.Errorf("the audit has %+v, %v, want who made it through which key", entries, err)
	}
	if _, by := delegate(t, issuer.By("ada", ""), delegation(parent)); by.CreatedBy != "ada" {
		t.Errorf("a child of ada was created by %q", by.CreatedBy)
	}
	caller, err := parsed.Caller(t.Context(), keys, nil)
	if err != nil || caller.Refused() != nil || caller.Granted().String() != "tasks:read" {
		t.Errorf("the child is %v, %v", caller, err)
	}
	revoke(t, issuer, parent.ID)
	if caller, err = parsed.Caller(t.Context(), keys, nil); err != nil || caller.Refused() != keystore.ErrRevoked {
		t.Errorf("after its parent was revoked a child is %v, %v, want it refused", caller.Refused(), err)
	}
}

// No child is made that is meant to do more than its parent.
func TestDelegateRefuses(t *testing.T) {
	cars := scope.New(scope.Definition{Name: "cars:read"},
		scope.Definition{Name: "cars:write", Implies: []scope.Name{"cars:read"}}, scope.Definition{Name: "cars:sell"})
	options := issuing.Options{Service: keystore.Service{Scopes: cars}, MaxChildLife: time.Hour,
		ChildAttributes: []string{"run", "plan"}}
	memory := issuing.NewMemory()
	issuer := issuing.New(memory, options)
	make := func(change func(k *keystore.Key)) *keystore.Key {
		k := grant()
		k.Scopes, k.Attributes = []scope.Name{"cars:write"}, map[string]string{"plan": "free"}
		change(&k)
		_, made := issue(t, issuer, k)
		return made
	}
	soon := time.Now().Add(30 * time.Minute)
	parent := make(func(k *keystore.Key) { k.Networks, k.ExpiresAt = prefixes("10.0.0.0/8", "2001:db8::/32"), soon })
	free, poor := make(func(*keystore.Key) {}), make(func(k *keystore.Key) { k.Scopes = nil })
	middle := delegation(parent)
	middle.Scopes, middle.Networks = []scope.Name{"cars:read"}, prefixes("10.9.0.0/16")
	_, child := delegate(t, issuer, middle)
	_, twice := delegate(t, issuer, delegationOf(child))
	_, thrice := delegate(t, issuer, delegationOf(twice))
	leaving := make(func(*keystore.Key) {})
	_, _, err := rotate(t, issuer, issuing.Rotation{ID: leaving.ID, Overlap: 10 * time.Minute})
	must(t, err)
	set := func(parent *keystore.Key, change func(k *keystore.Key)) keystore.Key {
		k := delegationOf(parent)
		change(&k)
		return k
	}
	scopes := func(names ...scope.Name) func(k *keystore.Key) { return func(k *keystore.Key) { k.Scopes = names } }
	networks := func(texts ...string) func(k *keystore.Key) {
		return func(k *keystore.Key) { k.Networks = prefixes(texts...) }
	}
	life := func(d time.Duration) func(k *keystore.Key) {
		return func(k *keystore.Key) { k.ExpiresAt = time.Now().Add(d) }
	}
	attribute := func(name string) func(k *keystore.Key) {
		return func(k *keystore.Key) { k.Attributes = map[string]string{name: "gold"} }
	}
	for name, c := range map[string]struct {
		k     keystore.Key
		field string // that is wrong, or ""
	}{
		"no scope":                       {set(parent, scopes()), ""},
		"an implied scope":               {set(parent, scopes("cars:read")), ""},
		"all scopes":                     {set(parent, scopes("cars:write", "cars:read")), ""},
		"another scope":                  {set(parent, scopes("cars:sell")), "scopes"},
		"an unknown scope":               {set(parent, scopes("cars:*")), "scopes"},
		"a scope of the parent's parent": {set(child, scopes("cars:write")), "scopes"},
		"a scope of a parent without":    {set(poor, scopes("cars:read")), "scopes"},
		"no scope of a parent without":   {set(poor, scopes()), ""},
		"a smaller network":              {set(parent, networks("10.1.0.0/16")), ""},
		"a larger network":               {set(parent, networks("10.0.0.0/7")), "networks"},
		"another network too":            {set(parent, networks("10.1.0.0/16", "192.0.2.0/24")), "networks"},
		"a network of a parent's parent": {set(child, networks("10.8.0.0/16")), "networks"},
		"of one that inherits":           {set(twice, networks("10.8.0.0/16")), "networks"},
		"a network":                      {set(free, networks("10.0.0.0/8")), ""},
		"no expiry":                      {set(free, func(k *keystore.Key) { k.ExpiresAt = time.Time{} }), "expires_at"},
		"the longest life":               {set(free, life(time.Hour-time.Minute)), ""},
		"too long a life":                {set(free, life(time.Hour+time.Minute)), "expires_at"},
		"the parent's end":               {set(parent, func(k *keystore.Key) { k.ExpiresAt = parent.ExpiresAt }), ""},
		"after the parent's end":         {set(parent, life(31*time.Minute)), "expires_at"},
		"after the overlap":              {set(leaving, life(11*time.Minute)), "expires_at"},
		"within the overlap":             {set(leaving, life(9*time.Minute)), ""},
		"after the parent's parent":      {set(child, life(59*time.Minute)), "expires_at"},
		"an attribute":                   {set(parent, attribute("run")), ""},
		"an attribute of the parent":     {set(parent, attribute("plan")), "attributes"},
		"of the parent's parent":         {set(child, attribute("plan")), "attributes"},
		"another attribute":              {set(parent, attribute("team")), "attributes"},
		"another environment": {
			set(parent, func(k *keystore.Key) { k.Environment = keystore.Production }), "environment"},
		"no parent":                     {set(&keystore.Key{Organization: "acme"}, func(*keystore.Key) {}), "parent"},
		"a child of a child of a child": {set(thrice, func(*keystore.Key) {}), "parent"},
		"no organization":               {set(parent, func(k *keystore.Key) { k.Organization = "" }), "organization"},
	} {
		secret, made, err := issuer.Delegate(t.Context(), c.k)
		if c.field != "" {
			wantField(t, err, c.field, name)
			if secret.Reveal() != "" || made != nil {
				t.Errorf("%s: got %v beside the error", name, made)
			}
		} else if err != nil {
			t.Errorf("%s: got %v, want a child", name, err)
		}
	}
	for name, k := range map[string]keystore.Key{
		"another organization's key": set(parent, func(k *keystore.Key) { k.Organization = "other" }),
		"a key that is not there":    set(parent, func(k *keystore.Key) { k.Parent = "key_0" }),
	} {
		if _, _, err := issuer.Delegate(t.Context(), k); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("a child of %s: got %v", name, err)
		}
	}
	k := grant()
	k.Scopes, k.Parent = nil, parent.ID
	_, _, err = issuer.Issue(t.Context(), k)
	wantField(t, err, "parent", "Issue of a key with a parent")
	_, err = issuer.Import(t.Context(), k, sandboxToken())
	wantField(t, err, "parent", "Import of a key with a parent")
	_, _, err = rotate(t, issuer, issuing.Rotation{ID: child.ID})
	wantField(t, err, "parent", "Rotate of a child")
}

// delegationOf is a delegation without scopes.
func delegationOf(parent *keystore.Key) keystore.Key {
	k := delegation(parent)
	k.Scopes = nil
	return k
}

func TestDelegateOfARefusedKey(t *testing.T) {
	memory, issuer := newIssuer()
	for wanted, change := range map[error]func(k *keystore.Key){
		keystore.ErrRevoked:   func(k *keystore.Key) { k.RevokedAt = time.Now() },
		keystore.ErrExpired:   func(k *keystore.Key) { k.ExpiresAt = time.Now() },
		keystore.ErrSuspended: func(k *keystore.Key) { k.Suspended = true },
	} {
		_, parent := issue(t, issuer, grant())
		_, child := delegate(t, issuer, delegation(parent))
		change(parent)
		must(t, memory.Update(t.Context(), parent, entry()))
		for _, k := range []*keystore.Key{parent, child} {
			if _, _, err := issuer.Delegate(t.Context(), delegation(k)); !errors.Is(err, wanted) {
				t.Errorf("got %v, want %v", err, wanted)
			}
		}
	}
}

// A repeat makes no second child, also when the first has ended, and finds that
// of its own parent alone.
func TestDelegateAgain(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	_, parent := issue(t, issuer, grant())
	_, other := issue(t, issuer, grant())
	k := delegation(parent)
	k.IssueToken = "once"
	_, child := delegate(t, issuer, k)
	for range 2 {
		secret, again, err := issuer.Delegate(t.Context(), k)
		if !errors.Is(err, issuing.ErrExists) || secret.Reveal() != "" || again == nil || again.ID != child.ID {
			t.Errorf("a repeat got %v, %v, want the first child", again, err)
		}
		revoke(t, issuer, child.ID)
	}
	k.Parent = other.ID
	if _, second := delegate(t, issuer, k); second.ID == child.ID {
		t.Error("another parent got the child")
	}
	_, _, err := issuer.By(parent.ID, "").Delegate(t.Context(), k)
	wantField(t, err, "issue_token", "a token with which the actor made the child of another key")
}

func TestMaxChildren(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{MaxChildren: 2, MaxKeys: 2})
	_, one := issue(t, issuer, grant())
	var first *keystore.Key
	for range 2 {
		_, first = delegate(t, issuer, delegation(one))
	}
	for _, k := range []*keystore.Key{one, first} {
		_, _, err := issuer.Delegate(t.Context(), delegation(k))
		wantField(t, err, "parent", "a third child of two, or one of a child")
	}
	_, two := issue(t, issuer, grant()) // children do not count
	delegate(t, issuer, delegation(two))
	revoke(t, issuer, first.ID)
	delegate(t, issuer, delegation(one))
}

// An edit of a child only takes away, and what a parent loses its child loses.
func TestEditOfAChild(t *testing.T) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{ChildAttributes: []string{"run", "plan"}})
	g := grant()
	g.Attributes = map[string]string{"plan": "free"}
	_, parent := issue(t, issuer, g)
	for field, change := range map[string]func(k *keystore.Key){
		"scopes":     func(k *keystore.Key) { k.Scopes = []scope.Name{scope.TasksRead, scope.TasksWrite} },
		"expires_at": func(k *keystore.Key) { k.ExpiresAt = k.ExpiresAt.Add(time.Hour) },
		"attributes": func(k *keystore.Key) { k.Attributes = map[string]string{"plan": "gold"} },
		"":           func(k *keystore.Key) { k.Attributes = map[string]string{"run": "8"} },
	} {
		_, child := delegate(t, issuer, delegation(parent))
		change(child)
		if _, err := issuer.Edit(t.Context(), *child); field != "" {
			wantField(t, err, field, "an edit of a child")
		} else if err != nil {
			t.Errorf("an edit of an attribute that a child may have: got %v", err)
		}
	}
	token, _ := delegate(t, issuer, delegation(parent))
	parent.Scopes = []scope.Name{scope.TasksWrite}
	_, err := issuer.Edit(t.Context(), *parent)
	must(t, err)
	k, err := issuer.KeyOf(t.Context(), token)
	if err != nil || k.Bind(scope.Default()).Has(scope.TasksRead) {
		t.Errorf("a child of a key that has lost a scope: %v, granted %v", err, k.Bind(scope.Default()).Granted())
	}
}

// The children of a rotated key end with it, and its successor has none of
// them. Those of an imported key have tokens of the present shape.
func TestDelegateOfOtherKeys(t *testing.T) {
	legacy := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}}}
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{Service: legacy})
	old, err := issuer.Import(t.Context(), record(grant(), keystore.Key{}), acme("1"))
	must(t, err)
	token, _ := delegate(t, issuer, delegation(old))
	_, next, err := rotate(t, issuer, issuing.Rotation{ID: old.ID, Overlap: time.Hour})
	must(t, err)
	status := func() error {
		k, err := issuer.KeyOf(t.Context(), token)
		return errors.Join(err, k.Refused())
	}
	if err := status(); err != nil {
		t.Errorf("a child during the overlap: %v", err)
	}
	delegate(t, issuer, delegation(next))
	revoke(t, issuer, old.ID)
	if err := status(); !errors.Is(err, keystore.ErrRevoked) {
		t.Errorf("a child after the overlap: %v", err)
	}
	children, err := issuer.Keys(t.Context(), "acme", issuing.Query{Parent: next.ID})
	if all, _ := issuer.Keys(t.Context(), "acme", issuing.Query{}); err != nil || len(children.Keys) != 1 ||
		len(all.Keys) != 2 {
		t.Errorf("got %d children and %d keys, %v, want 1 and 2", len(children.Keys), len(all.Keys), err)
	}
}
