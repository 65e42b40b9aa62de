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
			fmt.Fprintf(&b, "\n  code     %s: %s", f.culprit.site, line(f.culprit.text))
		}
		fmt.Fprintf(&b, "\n  instead  %s", f.instead)
	}
	return b.String()
}

// line is a statement on one line, and not all of it if it is long.
func line(statement string) string {
	statement = strings.Join(strings.Fields(statement), " ")
	if text := []rune(statement); len(text) > 90 {
		statement = string(text[:89]) + "…"
	}
	return statement
}
