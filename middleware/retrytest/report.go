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
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
)

// report has what became of a create under each fault.
type report struct {
	create  Create
	learned *run
	counts  map[verdict]int
	found   []*culprit
}

// culprit is a statement in the host's code, and what is wrong with it.
type culprit struct {
	verdict    verdict
	site, text string
	run        *run // that showed it first
	more       int  // how many others did
	instead    string
}

func (p *report) String() string {
	n := p.counts
	return fmt.Sprintf("%d faults  once %d  twice %d  lost %d  unknown %d",
		n[once]+n[twice]+n[missing]+n[unknown], n[once], n[twice], n[missing], n[unknown])
}

func (p *report) add(r *run) {
	if p.counts[r.verdict]++; r.verdict == once || r.verdict == unknown {
		return
	}
	c := r.blame()
	for _, known := range p.found {
		if known.verdict == c.verdict && known.site == c.site && known.text == c.text {
			known.more++
			return
		}
	}
	p.found = append(p.found, c)
}

// failures tells of each culprit.
func (p *report) failures() string {
	var b strings.Builder
	for _, c := range p.found {
		fmt.Fprintf(&b, "\n\n%s: %s; the client was told %s\n  fault    %s", c.verdict, c.run.wrong, c.run.final, c.run.cut())
		if c.more > 0 {
			fmt.Fprintf(&b, ", and %d more", c.more)
		}
		if c.site != "" {
			fmt.Fprintf(&b, "\n  code     %s: %s", c.site, line(c.text))
		}
		fmt.Fprintf(&b, "\n  instead  %s", c.instead)
	}
	return b.String()
}

// cut says what the fault was, and where.
func (r *run) cut() string {
	return strings.TrimPrefix(fmt.Sprintf("%s: %s: %s", r.at.site, line(r.at.text), r.fault), ": ")
}

// line is a statement on one line, and not all of it if it is long.
func line(statement string) string {
	statement = strings.Join(strings.Fields(statement), " ")
	if text := []rune(statement); len(text) > 90 {
		statement = string(text[:89]) + "…"
	}
	return statement
}

// blame finds the line that is wrong. Of a doubled effect it is the first one
// that was run twice and whose effect a rollback does not undo; else the one
// that the fault was at.
func (r *run) blame() *culprit {
	c := &culprit{verdict: r.verdict, site: r.at.site, text: r.at.text, run: r}
	switch {
	case r.verdict == missing && r.final.isFinal() && r.final.status >= 400:
		for _, s := range r.steps {
			if s.stands() {
				c.site, c.text, c.instead = s.site, s.text, beside
				return c
			}
		}
	case r.verdict == missing && c.site == "":
		c.instead = "Do not call Execution.Free and do not answer 2xx, unless all is written before that."
		return c
	case r.verdict == missing:
		c.instead = "The client is told that it was done: answer 500 when this fails, and write nothing after the response."
		return c
	}
	seen := map[place]*step{}
	for _, s := range r.steps {
		if !s.stands() {
			continue
		}
		at := place{site: s.site, text: s.text}
		if first := seen[at]; first != nil {
			c.site, c.text, c.instead = s.site, s.text, r.instead(first, s)
			return c
		}
		seen[at] = s
	}
	if c.site == "" {
		c.text = "" // one culprit, whichever the step
	}
	c.instead = "What was done twice is no statement that is known here: open its database with Process.DB, or tell of " +
		"the service's calls by Process.Conn."
	return c
}

// beside says what to write in place of a step beside a joined transaction.
const beside = "Write with the transaction of the request, idemsql.Tx(r.Context()) or idempgx.Tx(r.Context()): " +
	"this one stands when the reply does not."

// stands reports whether the host's code has changed something by a step that no
// transaction of the stages undoes.
func (s *step) stands() bool {
	return s.site != "" && !s.joined && !s.prevented && !reading.MatchString(s.text)
}

// instead says what to write in place of a step that was done twice.
func (r *run) instead(first, again *step) string {
	switch {
	case first.process == again.process && first.request == again.request:
		return "Do not run it again within a request: its first run may have taken effect. Return the error."
	case r.fault == lost:
		return "Pass on the context of the request: it ends when another process has taken the key over."
	case first.service:
		return "Write a row in the transaction of the request, and call the service after the commit by that row " +
			"(an outbox); or pass the Idempotency-Key on to a service that honors it."
	case first.late:
		return "Wait for the goroutine, and write in the transaction of the request, before the response."
	case r.first.joins.Load():
		return beside
	case r.freed:
		return "Do not call Execution.Free, nor answer with a status of FreeOn, when anything was written."
	}
	return "Use joined mode (idem.Options.Join), or let a unique column of the row be made of the Idempotency-Key."
}

const module = "github.com/sallyport-go/sallyport/"

var (
	// standard is where the standard library lies, or "" with -trimpath.
	standard = strings.TrimSuffix(fileOf(sql.OpenDB), "database/sql/sql.go")
	own      = regexp.MustCompile(`^` + module + `(middleware|idem|keystore|ratelimit|scope)\b`)
	adapter  = regexp.MustCompile(`^` + module + `(middleware/retrytest|idem/idemsql|idem/idempgx)\b`)
)

// folder is the test's.
var folder, _ = os.Getwd()

func fileOf(f any) string {
	pc := reflect.ValueOf(f).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return file
}

// origin says whose a frame is.
type origin uint8

const (
	foreign origin = iota // a library's
	ours
	host
)

func originOf(function, file string) origin {
	domain, _, _ := strings.Cut(function, "/")
	switch {
	case strings.HasSuffix(file, "_test.go"):
		return host
	case adapter.MatchString(function), strings.Contains(file, "@"), strings.Contains(file, "/vendor/"):
		return foreign
	case own.MatchString(function):
		return ours
	case standard != "" && strings.HasPrefix(file, standard), standard == "" && !strings.Contains(domain, "."):
		return foreign
	}
	return host
}

// caller returns the line of the host's code that runs a statement, or "" if
// one of the stages does. The call of a service runs in a fake of it, which has
// a caller of its own.
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
			if site = file + ":" + strconv.Itoa(f.Line); !service {
				return site
			}
			service = false
		}
		if !more {
			return site
		}
	}
}

var profiled = regexp.MustCompile(`(?m)^#\t0x\w+\t(\S+)\+0x\w+\s+(\S+):\d+$`)

// left reports whether goroutines of a request run code of the host's.
func left(id string) bool {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	for group := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(group, fmt.Sprintf("%q:%q", label, id)) &&
			slices.ContainsFunc(profiled.FindAllStringSubmatch(group, -1), func(f []string) bool {
				return originOf(f[1], f[2]) == host
			}) {
			return true
		}
	}
	return false
}
