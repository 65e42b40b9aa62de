package retrytest

import (
	"context"
	"database/sql"
	"io"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestOriginOf(t *testing.T) {
	const module, cache = "github.com/sallyport-go/sallyport", "/go/pkg/mod/"
	for _, test := range []struct {
		function, file string
		want           origin
	}{
		{module + "/middleware.serve", cache + module + "@v0.1.0/middleware/path.go", ours},
		{module + "/idem.Begin", "/src/host/vendor/" + module + "/idem/runner.go", ours},
		{module + "/idem/idemsql.Begin", cache + module + "@v0.1.0/idem/idemsql/store.go", foreign},
		{module + "/idem.TestBegin", "/src/sallyport/idem/runner_test.go", host},
		{"github.com/jackc/pgx/v5.Exec", cache + "github.com/jackc/pgx/v5@v5.12.0/conn.go", foreign},
		{"database/sql.OpenDB", fileOf(sql.OpenDB), foreign},
		{"parcels/http.Create", "/src/parcels/http/create.go", host},
	} {
		if got := originOf(test.function, test.file); got != test.want {
			t.Errorf("%s in %s: got %d, want %d", test.function, test.file, got, test.want)
		}
	}
}

// With -trimpath a file begins with its package, also of a module without a dot.
func TestOriginOfTrimmed(t *testing.T) {
	oldStandard, oldModule := standard, module
	defer func() { standard, module = oldStandard, oldModule }()
	if module != "github.com/sallyport-go/sallyport" {
		t.Errorf("the module of this test is %q", module)
	}
	standard, module = "", "parcels"
	for file, want := range map[string]origin{
		"database/sql/sql.go": foreign, "slices/sort.go": foreign,
		"parcels/http/create.go": host, "parcels.example/http/create.go": host,
		"parcels.example/bank@v1.0.0/bank.go": foreign,
	} {
		if got := originOf("", file); got != want {
			t.Errorf("%s: got %d, want %d", file, got, want)
		}
	}
}

// started starts a goroutine of a request. Until it runs it has no function of
// this file, as one has none that is given arguments.
func started(id string, do func()) {
	run := func(do func()) { do() }
	pprof.Do(context.Background(), pprof.Labels(label, id), func(context.Context) { go run(do) })
}

// The look without labels sees all that the one with labels sees, however deep
// in the standard library it waits.
func TestMayBeBusy(t *testing.T) {
	for deep := 0; deep < 40; deep += 3 {
		end, w := io.Pipe()
		var r io.Reader = end
		for range deep {
			r = io.TeeReader(r, io.Discard)
		}
		ended := make(chan struct{})
		started("busy", func() { r.Read(make([]byte, 1)); close(ended) })
		for range 2 {
			if left, may := leftBehind("busy"), mayBeBusy(); !left || !may {
				t.Errorf("%d deep: left behind: %t, may be busy: %t", deep, left, may)
			}
		}
		w.Close()
		<-ended
	}
}

// A goroutine that has yet to start is waited for, also where a library's function
// is all that is seen of it.
func TestYetToStart(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // it starts when this one waits, or is interrupted
	var group sync.WaitGroup
	defer group.Wait()
	var may, left bool
	for tries := 0; tries < 100 && !(may && left); tries++ {
		pprof.Do(context.Background(), pprof.Labels(label, "later"), func(context.Context) {
			group.Go(func() {})
		})
		may, left = mayBeBusy(), leftBehind("later")
	}
	if !may || !left {
		t.Errorf("may be busy: %t, left behind: %t, want both", may, left)
	}
}

// What other processes have left, and what is at a step, is not looked at with labels.
func TestBystanders(t *testing.T) {
	p := &Process{run: &run{}, died: newSignal()}
	end, at := make(chan struct{}), make(chan struct{})
	defer close(end)
	call := p.Conn(nil)
	started("step", func() {
		_ = call(t.Context(), "charge", func() error { close(at); <-end; return nil }, nil)
	})
	started("crash", func() { (&Process{died: newSignal()}).crash(true) })
	<-at
	began := time.Now()
	for mayBeBusy() { // until the goroutines of other tests have ended
		if time.Since(began) > time.Minute {
			t.Fatal("a step or a crash counts")
		}
		time.Sleep(time.Millisecond)
	}
}

// A goroutine that takes step after step is waited for, whenever it is looked at.
func TestQuietBetweenSteps(t *testing.T) {
	for range 20 {
		p := &Process{run: &run{}, died: newSignal()}
		call := p.Conn(nil)
		var ended atomic.Bool
		started("steps", func() {
			for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
				_ = call(context.Background(), "charge", func() error { time.Sleep(20 * time.Microsecond); return nil }, nil)
			}
			ended.Store(true)
		})
		if p.quiet("steps") && !ended.Load() { // a slow machine may give up
			t.Fatal("quiet while a goroutine takes steps")
		}
	}
}
