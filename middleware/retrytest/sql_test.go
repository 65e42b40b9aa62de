package retrytest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// What the wrappers have of package driver.
var (
	_ driver.Connector = connector{}
	_ driver.Tx        = &tx{}
	_ interface {
		driver.Conn
		driver.ConnBeginTx
		driver.ConnPrepareContext
		driver.ExecerContext
		driver.QueryerContext
		driver.NamedValueChecker
		driver.Pinger
		driver.SessionResetter
		driver.Validator
	} = &conn{}
	_ interface {
		driver.Stmt
		driver.StmtExecContext
		driver.StmtQueryContext
		driver.NamedValueChecker
	} = &stmt{}
)

// A later version of Go may have an interface more. Those of Rows are the driver's
// own, Execer, Queryer and ColumnConverter deprecated.
func TestTheWrappersLoseNoInterface(t *testing.T) {
	const known = "ColumnConverter Conn ConnBeginTx ConnPrepareContext Connector Driver DriverContext Execer " +
		"ExecerContext NamedValueChecker Pinger Queryer QueryerContext Result SessionResetter Stmt StmtExecContext " +
		"StmtQueryContext Tx Validator"
	source, err := build.Import("database/sql/driver", "", build.FindOnly)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(source.Dir, "driver.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, found := range regexp.MustCompile(`(?m)^type ([A-Z]\w+) interface`).FindAllSubmatch(text, -1) {
		if name := string(found[1]); !strings.HasPrefix(name, "Rows") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != known {
		t.Errorf("got %s, want %s", got, known)
	}
}

type fixed struct{ driver driver.Driver }

func (f fixed) Connect(context.Context) (driver.Conn, error) { return f.driver.Open("") }
func (f fixed) Driver() driver.Driver                        { return f.driver }

// bare is a driver without an optional interface, and rich one with all: what
// database/sql calls of them is the same behind the wrappers.
type calls []string

func (c *calls) add(name string) error { *c = append(*c, name); return nil }

type bare struct{ calls *calls }

func (b bare) Open(string) (driver.Conn, error)    { return b, nil }
func (b bare) Prepare(string) (driver.Stmt, error) { return bareStmt(b), b.calls.add("Prepare") }
func (b bare) Close() error                        { return nil }
func (b bare) Begin() (driver.Tx, error)           { return b, b.calls.add("Begin") }
func (b bare) Commit() error                       { return b.calls.add("Commit") }
func (b bare) Rollback() error                     { return b.calls.add("Rollback") }

type bareStmt struct{ calls *calls }

func (s bareStmt) Close() error  { return nil }
func (s bareStmt) NumInput() int { return -1 }
func (s bareStmt) Exec(v []driver.Value) (driver.Result, error) {
	return driver.RowsAffected(1), s.calls.add("Exec " + reflect.TypeOf(v[0]).String())
}
func (s bareStmt) Query([]driver.Value) (driver.Rows, error) { return noRows{}, s.calls.add("Query") }

type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return driver.ErrBadConn }

type rich struct{ bare }

func (r rich) Open(string) (driver.Conn, error)   { return r, nil }
func (r rich) Ping(context.Context) error         { return r.calls.add("Ping") }
func (r rich) ResetSession(context.Context) error { return r.calls.add("ResetSession") }
func (r rich) IsValid() bool                      { return r.calls.add("IsValid") == nil }
func (r rich) CheckNamedValue(v *driver.NamedValue) error {
	v.Value = "checked"
	return r.calls.add("CheckNamedValue")
}
func (r rich) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	return r, r.calls.add("BeginTx " + sql.IsolationLevel(o.Isolation).String())
}
func (r rich) PrepareContext(context.Context, string) (driver.Stmt, error) {
	return richStmt{bareStmt{r.calls}}, r.calls.add("PrepareContext")
}
func (r rich) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == "skip" {
		return nil, driver.ErrSkip
	}
	return driver.RowsAffected(1), r.calls.add("ExecContext " + args[0].Name)
}
func (r rich) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return noRows{}, r.calls.add("QueryContext")
}

type richStmt struct{ bareStmt }

func (s richStmt) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), s.calls.add("stmt.ExecContext")
}
func (s richStmt) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return noRows{}, s.calls.add("stmt.QueryContext")
}
func (s richStmt) CheckNamedValue(*driver.NamedValue) error {
	return s.calls.add("stmt.CheckNamedValue")
}

func TestTheWrappersChangeNothing(t *testing.T) {
	for name, of := range map[string]func(*calls) driver.Driver{
		"bare": func(c *calls) driver.Driver { return bare{c} },
		"rich": func(c *calls) driver.Driver { return rich{bare{c}} },
	} {
		t.Run(name, func(t *testing.T) {
			use := func(db *sql.DB) (errs []string) {
				defer db.Close()
				db.SetMaxOpenConns(1)
				check := func(err error) { errs = append(errs, fmt.Sprint(err)) }
				check(db.Ping())
				_, err := db.Exec("insert", sql.Named("a", 1))
				check(err)
				_, err = db.Exec("insert", 1)
				check(err)
				_, err = db.Exec("skip", 1)
				check(err)
				rows, err := db.Query("select")
				check(err)
				rows.Close()
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
				if check(err); err == nil {
					check(tx.Commit())
				}
				tx, err = db.Begin()
				check(err)
				s, err := tx.Prepare("insert")
				check(err)
				_, err = s.Exec(2)
				check(err)
				rows, err = s.Query()
				check(err)
				rows.Close()
				check(s.Close())
				check(tx.Rollback())
				return errs
			}
			var plain, wrapped calls
			want := use(sql.OpenDB(fixed{of(&plain)}))
			p := &Process{run: &run{}, died: newSignal()}
			db := sql.OpenDB(fixed{of(&wrapped)})
			defer db.Close()
			got := use(p.DB(db))
			if n := len(wrapped); wrapped[n-1] == "IsValid" { // the connection is given back
				wrapped = wrapped[:n-1]
			}
			if !slices.Equal(plain, wrapped) {
				t.Errorf("got the calls %q\nwant %q", wrapped, plain)
			}
			if !slices.EqualFunc(got, want, func(a, b string) bool { return (a == "<nil>") == (b == "<nil>") }) {
				t.Errorf("got the errors %q\nwant %q", got, want)
			}
		})
	}
}

// A connection that is severed is rolled back and not used again.
func TestAStoppedProcessHasNoConnection(t *testing.T) {
	var did calls
	db := sql.OpenDB(fixed{rich{bare{&did}}})
	defer db.Close()
	p := &Process{run: &run{}, died: newSignal()}
	if _, err := p.DB(db).Begin(); err != nil {
		t.Fatal(err)
	}
	p.stop()
	if n := db.Stats().OpenConnections; n != 0 || did[len(did)-1] != "Rollback" {
		t.Errorf("%d connections are open, after the calls %q", n, did)
	}
}

// The database may have too few connections, as the pool may.
func TestAConnectionIsWaitedFor(t *testing.T) {
	db := sql.OpenDB(fixed{rich{bare{new(calls)}}})
	defer db.Close()
	db.SetMaxOpenConns(1)
	p := &Process{run: &run{}, died: newSignal()}
	pool := p.DB(db)
	defer pool.Close()
	tx, err := pool.Begin()
	if err != nil || p.run.waited.Load() {
		t.Fatal(err, p.run.waited.Load())
	}
	defer tx.Rollback()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for db.Stats().WaitCount == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err = pool.ExecContext(ctx, "insert"); err == nil || !p.run.waited.Load() {
		t.Errorf("got %v, it was waited for: %t", err, p.run.waited.Load())
	}
}

// A statement that the driver wants to be prepared is one step.
func TestASkippedStatementIsNoStep(t *testing.T) {
	var at place
	for _, f := range []fault{none, breakAfter} {
		var did calls
		db := sql.OpenDB(fixed{rich{bare{&did}}})
		defer db.Close()
		r := &run{trial: trial{at: at}}
		pool := (&Process{run: r, fault: f, request: 1, serving: true, died: newSignal()}).DB(db)
		defer pool.Close()
		_, err := pool.Exec("skip", 1)
		if len(r.steps) != 1 || (err == errBroken) != (f == breakAfter) || !slices.Contains(did, "stmt.ExecContext") {
			t.Fatalf("%q: got %d steps, %v, the calls %q", f, len(r.steps), err, did)
		}
		at = r.steps[0].place
	}
}
