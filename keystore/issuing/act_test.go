package issuing_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/internal/transaction"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// audited returns an Issuer over a Cached, and what its sink was told.
func audited(t *testing.T, m issuing.Store, o issuing.Options) (*issuing.Issuer, *[]issuing.AuditEntry) {
	t.Helper()
	told := new([]issuing.AuditEntry)
	o.Service.Legacy = []keystore.LegacyFormat{{Name: "v1", Prefix: "old_"}}
	o.Audit = func(ctx context.Context, e issuing.AuditEntry) {
		if ctx.Err() != nil {
			t.Errorf("the sink was called with a context that has ended: %v", ctx.Err())
		}
		*told = append(*told, e)
	}
	return issuing.New(m, o), told
}

// Every act is one entry, in the store and at the sink, with who did it and
// why, and with nothing that helps to use the key. What changes nothing is
// none.
func TestEveryActIsAudited(t *testing.T) {
	memory := issuing.NewMemory()
	issuer, told := audited(t, memory, issuing.Options{})
	by := issuer.By("ada", "ticket 4")
	var k *keystore.Key
	var secrets []string
	edit := func(change func(k *keystore.Key)) func() error {
		return func() error {
			_, err := edit(t, by, "acme", k.ID, change)
			return err
		}
	}
	revoke := func(by *issuing.Issuer) func() error {
		return func() error {
			_, err := by.Revoke(t.Context(), "acme", k.ID)
			return err
		}
	}
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for _, c := range []struct {
		do   func() error
		want []string // act, reason and changes of each entry
	}{
		{func() error {
			secret, issued, err := by.Issue(t.Context(), grant())
			secrets, k = append(secrets, secret.Reveal()), issued
			return err
		}, []string{`issue ticket 4 [{name  Nightly import} {environment  sandbox} {scopes  tasks:read tasks:write}]`}},
		{edit(func(*keystore.Key) {}), nil},
		{edit(renamed("new")), []string{"rename ticket 4 [{name Nightly import new}]"}},
		{edit(suspended), []string{"suspend ticket 4 [{suspended  true}]"}},
		{edit(suspended), nil},
		{edit(func(k *keystore.Key) { k.Suspended = false }), []string{"resume ticket 4 [{suspended true }]"}},
		{edit(func(k *keystore.Key) {
			k.Scopes, k.ExpiresAt = []scope.Name{scope.TasksRead}, soon
			k.Attributes, k.Networks = map[string]string{"plan": "pro", "a": "b"}, prefixes("10.0.0.0/8")
		}), []string{"edit ticket 4 [{scopes tasks:read tasks:write tasks:read} {attributes  a=b plan=pro} " +
			"{networks  10.0.0.0/8} {expires_at  " + soon.Format(time.RFC3339) + "}]"}},
		{func() error {
			old := k
			secret, next, err := by.Rotate(t.Context(), issuing.Rotation{Organization: "acme", ID: k.ID})
			secrets, k = append(secrets, secret.Reveal()), next
			got, _ := issuer.Audit(t.Context(), "acme", issuing.AuditQuery{Key: old.ID})
			if len(got) != 6 || got[0].Act != "revoke" {
				t.Errorf("the entries of the key that was rotated are %v, want 6, the newest its revocation", got)
			}
			return err
		}, []string{"rotate ticket 4 [{name  new} {environment  sandbox} {scopes  tasks:read} " +
			"{attributes  a=b plan=pro} {networks  10.0.0.0/8} {expires_at  " + soon.Format(time.RFC3339) + "} " +
			"{rotated_from  " + "OLD}]", "revoke rotated [{revoked_at  NOW}]"}},
		{revoke(by), []string{"revoke ticket 4 [{revoked_at  NOW}]"}},
		{revoke(by), nil},
		{func() (err error) {
			secrets = append(secrets, "old_0123456789abcdefghij")
			k, err = by.Import(t.Context(), record(grant(), keystore.Key{ID: "ak_1"}), secrets[2])
			return err
		}, []string{"import ticket 4 [{name  Nightly import} {environment  sandbox} {scopes  tasks:read tasks:write} " +
			"{legacy  v1}]"}},
		{revoke(issuer.By("bea", "")), []string{"revoke other [{revoked_at  NOW}]"}},
	} {
		before := len(*told)
		old := k
		must(t, c.do())
		var got []string
		for _, e := range (*told)[before:] {
			text := fmt.Sprint(e.Act, " ", e.Reason, " ", e.Changes)
			for _, change := range e.Changes {
				switch change.Field {
				case "revoked_at":
					text = strings.ReplaceAll(text, change.After, "NOW")
				case "rotated_from":
					text = strings.ReplaceAll(text, old.ID, "OLD")
				}
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got the entries %q, want %q", got, c.want)
		}
	}
	kept, err := issuer.Audit(t.Context(), "acme", issuing.AuditQuery{})
	slices.Reverse(kept)
	for i, e := range kept {
		k, err := issuer.Key(t.Context(), "acme", e.Key)
		if err != nil || e.KeyName != k.Name || e.KeyHint != k.Hint {
			t.Errorf("an entry about %v, %v has the name %q and the hint %q", k, err, e.KeyName, e.KeyHint)
		}
		kept[i].KeyName, kept[i].KeyHint = "", ""
	}
	if err != nil || fmt.Sprint(kept) != fmt.Sprint(*told) {
		t.Errorf("the store has %v, %v, want what the sink was told, %v", kept, err, *told)
	}
	all := fmt.Sprintf("%+v", *told)
	for _, secret := range secrets {
		digest := keystore.DigestOf(secret)
		for _, part := range []string{secret[9:17], secret[len(secret)-4:], hex.EncodeToString(digest[:4])} {
			if strings.Contains(all, part) {
				t.Errorf("the audit holds %q of a token: %s", part, all)
			}
		}
	}
	if last := kept[len(kept)-1]; last.Actor != "bea" || kept[0].Actor != "ada" || last.Key != "ak_1" ||
		last.Organization != "acme" || time.Since(last.At) > time.Minute || last.ID <= kept[0].ID {
		t.Errorf("got the last entry %+v", last)
	}
}

// A client that has gone does not keep an act from being told.
func TestAuditOutlivesTheCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	issuer, told := audited(t, leaving{issuing.NewMemory(), cancel}, issuing.Options{})
	if _, _, err := issuer.Issue(ctx, grant()); err != nil || ctx.Err() == nil || len(*told) != 1 {
		t.Errorf("Issue returned %v, and the sink was told %v, want one entry", err, *told)
	}
}

// leaving is a store whose caller leaves as soon as it has a new key.
type leaving struct {
	issuing.Store
	leave func()
}

func (l leaving) Insert(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	defer l.leave()
	return l.Store.Insert(ctx, k, e, maxKeys)
}

// What fails is not told.
func TestAuditOfFailures(t *testing.T) {
	issuer, told := audited(t, failing{Store: issuing.NewMemory(), insert: down, update: down}, issuing.Options{})
	if _, _, err := issuer.Issue(t.Context(), grant()); !errors.Is(err, errStoreDown) || len(*told) != 0 {
		t.Errorf("Issue returned %v, the sink was told %v", err, *told)
	}
}

// writes are the errors of all acts on a key.
func writes(ctx context.Context, i *issuing.Issuer, k *keystore.Key) map[string]error {
	errs := make(map[string]error)
	_, _, errs["Issue"] = i.Issue(ctx, grant())
	_, _, errs["Delegate"] = i.Delegate(ctx, delegation(k))
	_, _, errs["Rotate"] = i.Rotate(ctx, issuing.Rotation{Organization: "acme", ID: k.ID})
	_, errs["Revoke"] = i.Revoke(ctx, "acme", k.ID)
	edited := *k
	edited.Suspended = true
	_, errs["Edit"] = i.Edit(ctx, edited)
	_, errs["Import"] = i.Import(ctx, record(grant(), keystore.Key{}), sandboxToken())
	_, _, errs["Erase"] = i.Erase(ctx, "acme")
	return errs
}

// An actor and a reason that no store could keep are refused before anything is
// done.
func TestBadActorOrReason(t *testing.T) {
	memory := issuing.NewMemory()
	_, k := issue(t, issuing.New(memory, issuing.Options{}), grant())
	for _, by := range [][2]string{{"\xff", "x"}, {"\u200b", ""}, {"x", "\x00"}, {strings.Repeat("x", 256), ""}} {
		for name, err := range writes(t.Context(), issuing.New(memory, issuing.Options{}).By(by[0], by[1]), k) {
			wrong, ok := errors.AsType[*keystore.FieldsError](err)
			if !ok || len(wrong.Fields) != 1 || wrong.Fields[0].Field != "actor" && wrong.Fields[0].Field != "reason" {
				t.Errorf("%s by %.9q for %.9q returned %v, want one problem", name, by[0], by[1], err)
			}
		}
	}
	if page, _ := memory.List(t.Context(), "acme", issuing.Query{}); len(page.Keys) != 1 || page.Keys[0].Version != 1 {
		t.Errorf("the keys are %v, want the one that was there, as it was", page.Keys)
	}
}

// Through a Cached an act is audited by its store, and forgotten at once.
func TestErase(t *testing.T) {
	memory := issuing.NewMemory()
	keys := keystore.NewCached(memory, keystore.CacheOptions{TTL: time.Hour})
	issuer := issuing.New(keys, issuing.Options{})
	token, k := issue(t, issuer, grant())
	g := grant()
	g.Organization = "other"
	otherToken, _ := issue(t, issuer, g)
	for _, live := range []string{token, otherToken} {
		want(t, keys, keystore.DigestOf(live), nil, "a key that is live")
	}
	edited(t, issuer, k.ID, suspended)
	want(t, keys, keystore.DigestOf(token), keystore.ErrSuspended, "after Edit")
	edited(t, issuer, k.ID, func(k *keystore.Key) { k.Suspended = false })
	want(t, keys, keystore.DigestOf(token), nil, "a key that is live")
	removed, entries, err := issuer.Erase(t.Context(), "acme")
	if err != nil || removed != 1 || entries != 3 {
		t.Errorf("Erase returned %d, %d, %v, want 1 key and 3 entries", removed, entries, err)
	}
	if got, err := keys.Lookup(t.Context(), keystore.DigestOf(token)); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("after Erase Lookup returned %v, %v, want ErrNotFound", got, err)
	}
	want(t, keys, keystore.DigestOf(otherToken), nil, "the key of another organization")
	if got, err := issuer.Audit(t.Context(), "acme", issuing.AuditQuery{}); err != nil || len(got) != 1 {
		t.Errorf("after Erase the audit is %v, %v, want the erasure alone", got, err)
	}
	if _, _, err := issuer.Erase(t.Context(), ""); err == nil {
		t.Error("Erase without an organization returned nil")
	}
}

// An erasure is told, and kept, with what it has removed and no reason. One of
// nothing is not. What is kept is swept as other entries are.
func TestAuditOfAnErasure(t *testing.T) {
	issuer, told := audited(t, issuing.NewMemory(), issuing.Options{})
	_, k := issue(t, issuer, grant())
	revoke(t, issuer.By("ada", issuing.ReasonLeaked), k.ID)
	for range 2 {
		_, _, err := issuer.By("ada", "left us").Erase(t.Context(), "acme")
		must(t, err)
	}
	all := issuing.AuditQuery{AllOrganizations: true}
	kept, err := issuer.Audit(t.Context(), "", all)
	e := (*told)[len(*told)-1]
	if err != nil || len(kept) != 1 || len(*told) != 3 || fmt.Sprint(kept[0]) != fmt.Sprint(e) {
		t.Errorf("the audit has %v, %v, want the last of what was told, %v", kept, err, *told)
	}
	got := fmt.Sprintf("%s by %s of %s%s: %s %v", e.Act, e.Actor, e.Organization, e.Key, e.Reason, e.Changes)
	if want := "erase by ada of acme:  [{keys 1 0} {entries 2 0}]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if removed, err := issuer.SweepAudit(t.Context(), -time.Hour); removed != 1 || err != nil {
		t.Errorf("SweepAudit removed %d, %v, want the erasure", removed, err)
	}
	if _, err := issuer.Audit(t.Context(), "acme", all); err == nil {
		t.Error("Audit of an organization and of all returned nil")
	}
}

// A page is bounded whatever is asked for, and its IDs sort as their times do.
func TestBoundsOfTheAudit(t *testing.T) {
	for asked, want := range map[int]int{-1: 100, 0: 100, 1: 1, 1000: 1000, 1001: 1000, math.MaxInt: 1000} {
		if _, _, limit := (issuing.AuditQuery{Limit: asked}).Bounds(); limit != want {
			t.Errorf("a Limit of %d: got %d, want %d", asked, limit, want)
		}
	}
	for _, year := range []int{1, 1969, 2026, 4252, 9999, 10000} {
		from, _, _ := (issuing.AuditQuery{Since: time.Date(year, 1, 1, 0, 0, 0, 1000, time.UTC)}).Bounds()
		if now := fmt.Sprintf("act_%014x", time.Now().UnixMicro()); (from <= now) != (year <= 2026) {
			t.Errorf("entries since %d are not below %q, those of now have %q", year, from, now)
		}
	}
	if _, below, _ := (issuing.AuditQuery{After: "act_0", Until: time.Now()}).Bounds(); below != "act_0" {
		t.Errorf("got those below %q, want below act_0", below)
	}
}

func TestSweepAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
		issue(t, issuer, grant())
		time.Sleep(time.Hour)
		issue(t, issuer, grant())
		for _, c := range []struct {
			keep time.Duration
			want int
		}{{time.Hour, 0}, {time.Hour - time.Microsecond, 1}, {-time.Microsecond, 1}, {-time.Hour, 0}} {
			if removed, err := issuer.SweepAudit(t.Context(), c.keep); removed != c.want || err != nil {
				t.Errorf("SweepAudit of what is older than %v removed %d, %v, want %d", c.keep, removed, err, c.want)
			}
		}
	})
}

// In the transaction of others an Issuer reads, and writes nothing.
func TestInTransaction(t *testing.T) {
	_, issuer := newIssuer()
	_, k := issue(t, issuer, grant())
	ctx := transaction.With(t.Context())
	noStore := issuing.New(struct{ issuing.Store }{}, issuing.Options{}) // each call panics
	errs := writes(ctx, noStore, k)
	_, errs["SweepAudit"] = noStore.SweepAudit(ctx, -time.Hour)
	reads := []string{"Audit", "By", "Key", "KeyOf", "Keys", "Masked", "Service", "Usage"}
	for m := range reflect.TypeFor[*issuing.Issuer]().Methods() {
		if _, there := errs[m.Name]; !there && !slices.Contains(reads, m.Name) {
			t.Errorf("Issuer.%s is no write here", m.Name)
		}
	}
	for method, err := range errs {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s returned %v, want an error that wraps errors.ErrUnsupported", method, err)
		}
	}
	page, err := issuer.Keys(ctx, "acme", issuing.Query{})
	if err != nil || len(page.Keys) != 1 || page.Keys[0].Version != 1 {
		t.Errorf("Keys returned %v, %v, want the key as it was", page.Keys, err)
	}
	if entries, err := issuer.Audit(ctx, "acme", issuing.AuditQuery{}); err != nil || len(entries) != 1 {
		t.Errorf("Audit returned %d entries, %v, want 1", len(entries), err)
	}
}
