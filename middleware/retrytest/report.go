package retrytest

import (
	"fmt"
	"strings"
)

// report has the verdicts on a create.
type report struct {
	counts   map[outcome]int
	findings []*finding
}

// finding is a verdict that fails the test.
type finding struct {
	verdict
	reply reply
	trial trial // of the first run that had it
	more  int   // how many others had
}

func (p *report) add(r *run, v verdict) {
	if p.counts[v.outcome]++; v.outcome == once || v.outcome == unknown {
		return
	}
	for _, f := range p.findings {
		if f.outcome == v.outcome && f.culprit == v.culprit {
			f.more++
			return
		}
	}
	p.findings = append(p.findings, &finding{verdict: v, reply: r.reply, trial: r.trial})
}

func (p *report) String() string {
	n := p.counts
	return fmt.Sprintf("%d faults  once %d  twice %d  lost %d  unknown %d",
		n[once]+n[twice]+n[lost]+n[unknown], n[once], n[twice], n[lost], n[unknown])
}

func (p *report) failures() string {
	var b strings.Builder
	for _, f := range p.findings {
		fmt.Fprintf(&b, "\n\n%s: %s; the client was told %s\n  fault    %s", f.outcome, f.wrong, f.reply, f.trial)
		if f.more > 0 {
			fmt.Fprintf(&b, ", and %d more", f.more)
		}
		if f.culprit.site != "" {
			fmt.Fprintf(&b, "\n  code     %s", f.culprit)
		}
		fmt.Fprintf(&b, "\n  instead  %s", f.instead)
	}
	return b.String()
}

// failure is what a run without a fault has done that has failed.
func (r *run) failure() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b, wrong strings.Builder
	var last *step
	accused := map[place]bool{}
	fmt.Fprintf(&b, "%s without a fault: %s, and it added %v", r.create.name(), r.reply, r.added)
	for _, s := range r.steps {
		if s.wraps {
			continue
		}
		fmt.Fprintf(&b, "\n  step     %s", s.place)
		if s.err != nil {
			last = s
		}
		beyond := s.site != "" && !s.joined && !s.service && (s.stands() || s.err != nil)
		if at := s.statement(); r.joins.Load() && beyond && !accused[at] {
			accused[at] = true
			fmt.Fprintf(&wrong, "\n  code     %s\n  instead  %s", at, beside)
		}
	}
	if last != nil {
		fmt.Fprintf(&b, "\n  error    %s: %v", last.place, last.err)
	}
	if r.joins.Load() && r.waited.Load() && len(accused) == 0 {
		fmt.Fprintf(&wrong, "\n  error    all connections of a pool were in use, one by the transaction of the request"+
			"\n  instead  %s", beside)
	}
	return b.String() + wrong.String()
}

// line is a statement on one line, and not all of it if it is long.
func line(statement string) string {
	statement = strings.Join(strings.Fields(statement), " ")
	if text := []rune(statement); len(text) > 90 {
		statement = string(text[:89]) + "…"
	}
	return statement
}
