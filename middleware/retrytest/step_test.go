package retrytest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A handler may use a context of its own, which does not end with the request's.
func TestAContextThatOutlivesTheRequest(t *testing.T) {
	var at place
	charge := func(ctx context.Context, p *Process) {
		_ = p.Conn(nil)(ctx, "charge", func() error { return nil }, nil)
	}
	for _, f := range []fault{none, expired, lostClaim} {
		synctest.Test(t, func(t *testing.T) {
			r := &run{trial: trial{fault: f, at: at}, create: Create{Path: "/parcels"}}
			process := func(f fault) *Process {
				return &Process{run: r, fault: f, request: 1, serving: true,
					died: newSignal(), asks: newSignal(), told: newSignal(), answered: newSignal()}
			}
			r.first, r.second = process(f), process(none)
			r.second.handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { charge(t.Context(), r.second) })
			r.first.claimed.Store(true)
			r.first.told.give()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			charge(ctx, r.first)
			if took := time.Since(began); r.fired != (f != none) || took > time.Second || r.fired && took < grace {
				t.Errorf("%q: it took %s", f, took)
			}
			at = r.steps[0].place
		})
	}
}

// The names of savepoints are made up for each request: their numbers are not.
func TestSavepoints(t *testing.T) {
	db := sql.OpenDB(fixed{rich{bare{new(calls)}}})
	defer db.Close()
	r := &run{}
	p := &Process{run: r, request: 1, serving: true, died: newSignal()}
	pool := p.DB(db)
	defer pool.Close()
	for text, want := range map[string]string{
		"SAVEPOINT %s": "SAVEPOINT 1", "savepoint \"%s a\"": "savepoint 1", "RELEASE %s;": "RELEASE 1",
		"Release Savepoint %s": "Release Savepoint 1", "ROLLBACK TO %s": "ROLLBACK TO 1",
		"ROLLBACK TRANSACTION TO SAVEPOINT %s":               "ROLLBACK TRANSACTION TO SAVEPOINT 1",
		"SAVEPOINT %[1]sb; SAVEPOINT %[1]sa; RELEASE %[1]sb": "SAVEPOINT 1; SAVEPOINT 2; RELEASE 1",
		"UPDATE savepoint SET a":                             "UPDATE savepoint SET a",
	} {
		r.steps, p.savepoints = nil, nil
		if strings.Contains(text, "%") {
			text = fmt.Sprintf(text, "sp"+rand.Text())
		}
		if _, err := pool.Exec(text, 1); err != nil || r.steps[0].text != want {
			t.Errorf("%s: got %q %v, want %q", text, r.steps[0].text, err, want)
		}
	}
}
