package retrytest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// The wrappers have each optional interface of package driver that there is,
// also in a later version of Go; those of Rows are the driver's own.
func TestTheWrappersLoseNoInterface(t *testing.T) {
	wrappers := map[string]any{
		"conn": &conn{}, "stmt": &stmt{}, "tx": &tx{}, "connector": connector{},
	}
	wants := map[string]string{
		"Conn": "conn", "ConnBeginTx": "conn", "ConnPrepareContext": "conn", "ExecerContext": "conn",
		"QueryerContext":    "conn",
		"NamedValueChecker": "conn stmt", "Pinger": "conn", "SessionResetter": "conn", "Validator": "conn",
		"Stmt": "stmt", "StmtExecContext": "stmt", "StmtQueryContext": "stmt",
		"Tx": "tx", "Connector": "connector",
		"Execer": "", "Queryer": "", // database/sql prefers those with a context
		"ColumnConverter": "", // deprecated for NamedValueChecker
		"Driver":          "", "DriverContext": "", "Result": "", "Valuer": "", "ValueConverter": "",
	}
	source, err := build.Import("database/sql/driver", "", build.FindOnly)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, filepath.Join(source.Dir, "driver.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() || strings.HasPrefix(spec.Name.Name, "Rows") {
			return true
		}
		of, ok := spec.Type.(*ast.InterfaceType)
		if !ok {
			return true
		}
		found++
		names, known := wants[spec.Name.Name]
		if !known {
			t.Errorf("driver.%s is not known here", spec.Name)
		}
		for _, name := range strings.Fields(names) {
			for _, m := range of.Methods.List {
				if len(m.Names) == 0 {
					continue
				}
				if _, has := reflect.TypeOf(wrappers[name]).MethodByName(m.Names[0].Name); !has {
					t.Errorf("%s has no %s of driver.%s", name, m.Names[0], spec.Name)
				}
			}
		}
		return true
	})
	if found < 20 {
		t.Errorf("found %d interfaces", found)
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
	for _, d := range []struct {
		name   string
		driver func(*calls) driver.Driver
	}{
		{"bare", func(c *calls) driver.Driver { return bare{c} }},
		{"rich", func(c *calls) driver.Driver { return rich{bare{c}} }},
	} {
		t.Run(d.name, func(t *testing.T) {
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
			want := use(sql.OpenDB(fixed{d.driver(&plain)}))
			p := &Process{run: &run{}, died: newSignal()}
			db := sql.OpenDB(fixed{d.driver(&wrapped)})
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
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
