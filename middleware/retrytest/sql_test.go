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

func (c *calls) add(name string) { *c = append(*c, name) }

type bare struct{ calls *calls }

func (b bare) Open(string) (driver.Conn, error) { return b, nil }
func (b bare) Prepare(query string) (driver.Stmt, error) {
	b.calls.add("Prepare")
	return bareStmt(b), nil
}
func (b bare) Close() error              { return nil }
func (b bare) Begin() (driver.Tx, error) { b.calls.add("Begin"); return b, nil }
func (b bare) Commit() error             { b.calls.add("Commit"); return nil }
func (b bare) Rollback() error           { b.calls.add("Rollback"); return nil }

type bareStmt struct{ calls *calls }

func (s bareStmt) Close() error  { return nil }
func (s bareStmt) NumInput() int { return -1 }
func (s bareStmt) Exec(v []driver.Value) (driver.Result, error) {
	s.calls.add("Exec " + reflect.TypeOf(v[0]).String())
	return driver.RowsAffected(1), nil
}
func (s bareStmt) Query([]driver.Value) (driver.Rows, error) {
	s.calls.add("Query")
	return noRows{}, nil
}

type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return driver.ErrBadConn }

type rich struct{ bare }

func (r rich) Open(string) (driver.Conn, error)   { return r, nil }
func (r rich) Ping(context.Context) error         { r.calls.add("Ping"); return nil }
func (r rich) ResetSession(context.Context) error { r.calls.add("ResetSession"); return nil }
func (r rich) IsValid() bool                      { r.calls.add("IsValid"); return true }
func (r rich) CheckNamedValue(v *driver.NamedValue) error {
	r.calls.add("CheckNamedValue")
	v.Value = "checked"
	return nil
}
func (r rich) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	r.calls.add("BeginTx " + sql.IsolationLevel(o.Isolation).String())
	return r, nil
}
func (r rich) PrepareContext(context.Context, string) (driver.Stmt, error) {
	r.calls.add("PrepareContext")
	return richStmt{bareStmt{r.calls}}, nil
}
func (r rich) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == "skip" {
		return nil, driver.ErrSkip
	}
	r.calls.add("ExecContext " + args[0].Name)
	return driver.RowsAffected(1), nil
}
func (r rich) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	r.calls.add("QueryContext")
	return noRows{}, nil
}

type richStmt struct{ bareStmt }

func (s richStmt) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	s.calls.add("stmt.ExecContext")
	return driver.RowsAffected(1), nil
}
func (s richStmt) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	s.calls.add("stmt.QueryContext")
	return noRows{}, nil
}
func (s richStmt) CheckNamedValue(*driver.NamedValue) error {
	s.calls.add("stmt.CheckNamedValue")
	return nil
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
