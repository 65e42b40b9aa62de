package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// child makes a child of k.
func (b *bench) child(t *testing.T, k *keystore.Key, name string) *keystore.Key {
	t.Helper()
	ends := k.ExpiresAt
	if ends.IsZero() {
		ends = time.Now().Add(time.Hour)
	}
	_, child, err := b.issuer.Delegate(t.Context(), keystore.Key{Organization: k.Organization, Parent: k.ID, Name: name,
		ExpiresAt: ends})
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func TestChildrenStandWithTheirParent(t *testing.T) {
	b := newBench(t)
	_, parent := b.add(t, "acme", func(k *keystore.Key) { k.Name = "agents" })
	run := b.child(t, parent, "run 1")
	b.child(t, run, "step 1")
	b.revoke(t, b.child(t, parent, "run 2"))
	all := b.get("/")
	wantText(t, "the list", all, 200, "agents 1 child", "1 key")
	wantNone(t, "the list has a child", all, "run 1")
	wantText(t, "the parent's page", b.get("/"+parent.ID), 200, "Children", "run 1 Expires", "See all 1, and those that")
	below := b.get("/?parent=" + parent.ID)
	wantText(t, "its children", below, 200, "Children of “agents”", "run 1 1 child", "Ended keys", "run 2")
	wantHTML(t, "a search among children is not one among them next time", b.get("/?parent="+parent.ID+"&q=run"),
		`name="parent" value="`+parent.ID)
	wantSeeOther(t, "a search for the ID of a child", b.get("/?q="+run.ID), "./"+run.ID)
	wantText(t, "of another organization", b.do("oda", "GET", "/?q="+run.ID, ""), 200, "No live key matches")
	wantText(t, "of another organization", b.do("oda", "GET", "/?parent="+parent.ID, ""), 404)
}

// A child is not rotated, and none is created like it: the limits of its
// ancestors are not in its record. It shows how it is with them.
func TestPageOfAChild(t *testing.T) {
	b := newBench(t)
	_, parent := b.add(t, "acme")
	at := "/" + b.child(t, parent, "run 1").ID
	page := b.get(at)
	wantText(t, "a child", page, 200, "UTC by its parent", "Child of "+parent.Name+" Networks", "Active")
	wantNone(t, "the page of a child", page, "/rotate", "?like=", "by "+parent.ID)
	wantText(t, "its rotation", b.get(at+"/rotate"), 409, "A child is not rotated")
	wantText(t, "its rotation", b.post(at+"/rotate", nil), 409, "A child is not rotated")
	wantText(t, "one like it", b.get("/new?like="+at[1:]), 404)

	parent.Suspended = true
	parent, err := b.issuer.Edit(t.Context(), *parent)
	if err != nil {
		t.Fatal(err)
	}
	page = b.get(at)
	wantText(t, "a child of a suspended key", page, 200, "Suspended", "The key that made this one is suspended")
	wantNone(t, "the page of a child resumes its parent", page, "Resume")
	rows := strings.Split(b.get("/?parent="+parent.ID).text, "<tr ")
	for _, text := range []string{"run 1", "Suspended"} {
		wantShown(t, "its row in the list", reply{text: rows[len(rows)-1]}, true, text)
	}
	b.revoke(t, parent)
	wantText(t, "a child of a revoked key", b.get(at), 200, "This key was revoked on "+
		b.key(t, parent.ID).RevokedAt.Format("2 Jan 2006"))
	orphan := &keystore.Key{ID: "key_orphan", Organization: "acme", Environment: keystore.Sandbox, Parent: "key_swept",
		ExpiresAt: time.Now().Add(time.Hour)}
	if err := b.store.Insert(t.Context(), orphan, issuing.AuditEntry{}, 0); err != nil {
		t.Fatal(err)
	}
	page = b.get("/key_orphan")
	wantText(t, "a child of a key that was swept", page, 200, "This key was revoked. Requests")
	wantNone(t, "a child of a key that was swept has an end that nobody knows", page, "1970")
}
