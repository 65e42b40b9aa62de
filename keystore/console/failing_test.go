package console_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// state is what a store holds.
func state(t *testing.T, m issuing.Store) (text string) {
	t.Helper()
	page, err := m.List(t.Context(), "acme", issuing.Query{Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range page.Keys {
		text += fmt.Sprintln(*k)
	}
	entries, err := m.Audit(t.Context(), "acme", issuing.AuditQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintln(text, entries)
}

// A page is 503 when any call of the store fails, that one alone or all from
// then on. It does not tell the cause, and nothing is changed. Once a key is
// made, its secret is shown whatever fails: those calls end in 201.
func TestFailingCalls(t *testing.T) {
	for _, row := range []struct{ request, form, calls string }{
		{"GET /", "", "List List List List List"},
		{"GET /?q=none", "", "List List Find"},
		{"GET /?q=TOKEN", "", "Lookup Find"},
		{"GET /?parent=OLD", "", "Find List List"},
		{"GET /new?like=OLD", "", "Find"},
		{"GET /audit", "", "Audit"},
		{"GET /audit?file=csv", "", "Audit"},
		{"GET /OLD", "", "Find Usage List Usage Audit List"},
		{"GET /NEW", "", "Find Usage List Find Usage Audit List"},
		{"GET /NEW/used", "", "Find Usage"},
		{"GET /NEW/edit", "", "Find Usage"},
		{"GET /NEW/rotate", "", "Find Usage"},
		{"GET /NEW/suspend", "", "Find Usage"},
		{"GET /NEW/revoke", "", "Find Usage"},
		{"POST /new", valid, "FindIssued Insert Usage=201"},
		{"POST /NEW/edit", valid, "Find Find Update"},
		{"POST /NEW/edit", valid + "&version=7", "Find Find Usage"}, // a conflict
		{"POST /NEW/rotate", valid, "Find Find FindIssued Insert Find=201 Update=201 Usage=201"},
		{"POST /NEW/rotate", "issue_token=t1&overlap=x", "Find Usage"},
		{"POST /NEW/suspend", "", "Find Find Update"},
		{"POST /ASLEEP/resume", "", "Find Find Update"},
		{"POST /NEW/narrow", "", "Find Usage Find"},
		{"POST /NEW/revoke", "", "Find Find Update"},
	} {
		// send makes the request of a store of its own.
		send := func(at int, stayDown bool) (got reply, calls []string, changed bool) {
			store := &faulty.Store{Store: issuing.NewMemory()}
			log := new(bytes.Buffer)
			b := benchOf(issuing.New(store, issuing.Options{}), console.Options{
				Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
			token, old := b.add(t, "acme")
			_, next, err := b.issuer.Rotate(t.Context(), issuing.Rotation{Organization: "acme", ID: old.ID, Overlap: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			_, asleep := b.add(t, "acme")
			b.suspend(t, asleep)
			before := state(t, store.Store)
			store.Before = func(call string) error { // the first is 1; at 0 none fails
				calls = append(calls, call)
				if n := len(calls); at > 0 && (n == at || n > at && stayDown) {
					return errors.New("no route to 10.0.0.7")
				}
				return nil
			}
			method, path, _ := strings.Cut(strings.NewReplacer("OLD", old.ID, "NEW", next.ID, "ASLEEP", asleep.ID,
				"TOKEN", token).Replace(row.request), " ")
			got = b.do("ada", method, path, row.form, ofPage...)
			if got.StatusCode == 503 {
				wantText(t, row.request, got, 503, "Try again in a moment")
				doubt := strings.Contains(plain(got), "It is not known whether anything was changed.")
				if doubt != (method == http.MethodPost) || !strings.Contains(log.String(), "10.0.0.7") {
					t.Errorf("%s, when call %d fails: the page %s\nthe log: %s", row.request, at, plain(got), log)
				}
			}
			return got, calls, state(t, store.Store) != before
		}
		_, calls, _ := send(0, false)
		if want := strings.ReplaceAll(row.calls, "=201", ""); strings.Join(calls, " ") != want {
			t.Errorf("%s: got the calls %v, want %s", row.request, calls, want)
			continue
		}
		for i, call := range strings.Fields(row.calls) {
			made, want := strings.HasSuffix(call, "=201"), 503
			if made {
				want = 201
			}
			for _, stayDown := range []bool{false, true} {
				got, _, changed := send(i+1, stayDown)
				if got.StatusCode != want || changed != made || strings.Contains(got.text, "10.0.0.7") {
					t.Errorf("%s, when call %d fails (%s) and stays down (%t): got %s, changed %t:\n%s",
						row.request, i+1, call, stayDown, got.Status, changed, plain(got))
				}
			}
		}
	}
}
