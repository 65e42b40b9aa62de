package retrytest

import (
	"fmt"
	"strings"
)

// report has what became of a create under each fault.
type report struct {
	learned *run
	counts  map[verdict]int
	found   []*culprit
}

func (p *report) String() string {
	n := p.counts
	return fmt.Sprintf("%d faults  once %d  twice %d  lost %d  unknown %d",
		n[once]+n[twice]+n[lost]+n[unknown], n[once], n[twice], n[lost], n[unknown])
}

func (p *report) add(r *run) {
	r.judge(p.learned)
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
		fmt.Fprintf(&b, "\n\n%s: %s; the client was told %s\n  fault    %s",
			c.verdict, c.run.wrong, c.run.reply, c.run.trial)
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

// line is a statement on one line, and not all of it if it is long.
func line(statement string) string {
	statement = strings.Join(strings.Fields(statement), " ")
	if text := []rune(statement); len(text) > 90 {
		statement = string(text[:89]) + "…"
	}
	return statement
}
