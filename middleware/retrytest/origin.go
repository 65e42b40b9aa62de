package retrytest

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
)

var (
	own     = regexp.MustCompile(`^github\.com/sallyport-go/sallyport/(middleware|idem|keystore|ratelimit|scope)\b`)
	adapter = regexp.MustCompile(`^github\.com/sallyport-go/sallyport/(middleware/retrytest|idem/idemsql|idem/idempgx)\b`)
	// standard is where the standard library lies, or "" with -trimpath: a file
	// then begins with its package, and module is that of the test.
	standard  = strings.TrimSuffix(fileOf(sql.OpenDB), "database/sql/sql.go")
	module    = mainModule()
	folder, _ = os.Getwd() // the test's
)

func mainModule() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Path
	}
	return ""
}

func fileOf(f any) string {
	pc := reflect.ValueOf(f).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return file
}

// origin says whose a frame is.
type origin uint8

const (
	foreign origin = iota // a library's
	ours                  // a stage's
	host                  // the server's under test
)

func originOf(function, file string) origin {
	switch {
	case strings.HasSuffix(file, "_test.go"):
		return host
	case adapter.MatchString(function):
		return foreign
	case own.MatchString(function): // in a module cache, too
		return ours
	case strings.Contains(file, "@"), strings.Contains(file, "/vendor/"), isStandard(file):
		return foreign
	}
	return host
}

func isStandard(file string) bool {
	if standard != "" {
		return strings.HasPrefix(file, standard)
	}
	domain, _, _ := strings.Cut(file, "/")
	return !strings.Contains(domain, ".") && !strings.HasPrefix(file, module+"/")
}

// caller returns the line of the host's code that takes a step, or "" if one of
// the stages does. The fake of a service is the host's code too, and takes its
// steps: what calls the fake is the second line.
func caller(service bool) (site string) {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		switch originOf(f.Function, f.File) {
		case ours:
			return site
		case host:
			file := f.File
			if near, err := filepath.Rel(folder, file); err == nil && len(near) < len(file) {
				file = near
			}
			if site = fmt.Sprintf("%s:%d", file, f.Line); !service {
				return site
			}
			service = false
		}
		if !more {
			return site
		}
	}
}

const harness = "github.com/sallyport-go/sallyport/middleware/retrytest."

// bystanders are functions that a goroutine is in if it is a test's, has crashed,
// or is at a step.
var bystanders = []string{
	"testing.tRunner", harness + "(*Process).send", harness + "(*Process).crash", harness + "(*link).attempt",
}

// stacks are those of all goroutines, without their labels: a profile with them
// takes a hundred times as long.
var stacks = struct {
	sync.Mutex
	all   []runtime.StackRecord
	known map[uintptr]frame // by program counter
}{known: map[uintptr]frame{}}

// frame is what an instruction says of a goroutine that is there.
type frame uint8

const (
	neither frame = iota
	hosts         // it runs code of the host's
	stands        // it is a bystander, whatever else it runs
)

// mayBeBusy reports false if no goroutine of any request runs code of the host's
// outside a step. What may be the host's counts: a deep stack, of which the profile
// has the last functions, and a goroutine that has yet to start, which has few.
func mayBeBusy() bool {
	stacks.Lock()
	defer stacks.Unlock()
	n, ok := runtime.GoroutineProfile(stacks.all)
	for ; !ok; n, ok = runtime.GoroutineProfile(stacks.all) {
		stacks.all = make([]runtime.StackRecord, n+n/4+10)
	}
	return slices.ContainsFunc(stacks.all[:n], func(r runtime.StackRecord) bool {
		depth := len(r.Stack())
		busy := depth <= 2 || depth == len(r.Stack0) // the last of two is goexit
		for _, pc := range r.Stack() {
			switch frameAt(pc) {
			case stands:
				return false
			case hosts:
				busy = true
			}
		}
		return busy
	})
}

func frameAt(pc uintptr) frame {
	f, found := stacks.known[pc]
	if !found {
		at, _ := runtime.CallersFrames([]uintptr{pc}).Next()
		switch {
		case slices.Contains(bystanders, at.Function):
			f = stands
		case originOf(at.Function, at.File) == host:
			f = hosts
		}
		stacks.known[pc] = f
	}
	return f
}

var profiled = regexp.MustCompile(`(?m)^#\t0x\w+\t(\S+)\+(0x\w+)\s+(\S+):\d+$`)

// leftBehind reports whether goroutines of a request run code of the host's.
func leftBehind(id string) bool {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	for group := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(group, fmt.Sprintf("%q:%q", label, id)) {
			continue
		}
		frames := profiled.FindAllStringSubmatch(group, -1)
		if len(frames) == 0 || frames[0][2] == "0x0" { // it has yet to start
			return true
		}
		for _, f := range frames {
			if originOf(f[1], f[3]) == host {
				return true
			}
		}
	}
	return false
}
