package console_test

import (
	"net/url"
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func TestSuspendAndResume(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme")
	path := "/" + k.ID
	wantText(t, "the form", b.get(path+"/suspend"), 200, "Suspend “Old one”?", "Last used Never used")
	for range 2 { // a repeat changes nothing
		wantText(t, "suspend", b.post(path+"/suspend", url.Values{"note": {" leaving "}}), 303)
	}
	b.wantStatus(t, "suspend", token, keystore.Suspended)
	wantText(t, "its page", b.get(path), 200, "This key is suspended.", "Resume")
	wantText(t, "the form of a suspended key", b.get(path+"/suspend"), 303)
	for range 2 {
		wantText(t, "resume", b.post(path+"/resume", nil), 303)
	}
	wantText(t, "suspend", b.post(path+"/suspend", url.Values{"note": {"rotated"}}), 303) // which it was not
	wantText(t, "resume", b.post(path+"/resume", nil), 303)
	b.wantStatus(t, "resume", token, keystore.Active)
	wantText(t, "its page", b.get(path+"?done=resumed"), 200, "The key works again.")
	b.wantActs(t, "suspend "+k.ID+" by ada: leaving", "resume "+k.ID+" by ada: ",
		"suspend "+k.ID+" by ada: other", "resume "+k.ID+" by ada: ")
}

// What takes rights away is for every administrator, what gives them back or
// decides between them for those who may assign them all.
func TestActsThatAreRefused(t *testing.T) {
	b := newBench(t, assignable(scope.TasksRead))
	_, k := b.add(t, "acme", holding(scope.TasksRead, scope.TasksWrite))
	path := "/" + k.ID
	wantText(t, "narrow", b.post(path+"/narrow", url.Values{"without": {"tasks:write"}}), 403, "Not yours to edit")
	wantText(t, "suspend", b.post(path+"/suspend", nil), 303)
	wantText(t, "resume", b.post(path+"/resume", nil), 403, "Not yours to edit")
	wantNone(t, "the page offers to resume the key", b.get(path), "Resume")
	b.options.Assignable = nil
	b.mount(issuing.Options{})
	wantText(t, "all scopes", b.post(path+"/narrow", url.Values{"without": {"tasks:write", "tasks:read"}}), 409,
		"This scope is in use", "A request has needed tasks:read, or the store cannot tell. Nothing was changed.")
	for _, act := range []string{"narrow", "resume"} {
		wantText(t, "GET "+act, b.get(path+"/"+act), 200, "This key is suspended.") // and changes nothing
	}
	wantText(t, "revoke", b.post(path+"/revoke", nil), 303)
	for _, act := range []string{"narrow", "suspend", "resume"} {
		wantText(t, act+" of a revoked key", b.post(path+"/"+act, url.Values{"without": {"x"}}), 409, "This key is revoked")
	}
	if got := b.key(t, k.ID); !slices.Equal(got.Scopes, k.Scopes) || !got.Suspended {
		t.Errorf("the key is %+v", got)
	}
	b.wantActs(t, "suspend "+k.ID+" by ada: ", "revoke "+k.ID+" by ada: other")
}
