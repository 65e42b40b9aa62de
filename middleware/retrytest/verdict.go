package retrytest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

type verdict string

const (
	once    verdict = "once"
	twice   verdict = "twice"
	lost    verdict = "lost"
	unknown verdict = "unknown" // the client is told so, or that it failed
)

// judge compares the effects with those of a create without a fault.
func (r *run) judge(learned *run) {
	r.verdict = once
	most, changed := 0, false
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(r.added)) {
		n, want := r.added[name], learned.added[name]
		changed = changed || n > 0
		if n != want {
			wrong = append(wrong, fmt.Sprintf("%d %s in place of %d", n, name, want))
			most = max(most, n-want)
		}
	}
	r.wrong = strings.Join(wrong, ", ")
	switch ok := r.reply.status < 400; {
	case most > 0:
		r.verdict = twice
	case !r.reply.isFinal():
		r.verdict, r.wrong = lost, "the client never gets an answer that is final, but "+r.reply.String()
	case !ok && changed && r.denied(wrong != nil):
		r.verdict, wrong = lost, append(wrong, "the client is told "+r.reply.String())
		r.wrong = strings.Join(wrong, ", and ")
	case !ok:
		r.verdict = unknown
	case wrong != nil:
		r.verdict = lost
	}
}

// denied reports whether the client of a joined create that has left effects is
// not told of them: of a part, or of all by a refusal of the handler's own.
func (r *run) denied(part bool) bool {
	return r.joins.Load() && (part || !strings.Contains(r.reply.body, `"idempotency_`))
}

// reading is a statement that has no effect by itself.
var reading = regexp.MustCompile(`(?i)^\s*(SELECT|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET)\b`)

// culprit is a statement in the host's code, and what is wrong with it.
type culprit struct {
	verdict    verdict
	site, text string
	run        *run // that showed it first
	more       int  // how many others did
	instead    string
}

// blame finds the line that is wrong. Of a doubled effect it is the first one
// that was run twice and whose effect a rollback does not undo; else the one
// that the fault was at.
func (r *run) blame() *culprit {
	c := &culprit{verdict: r.verdict, site: r.at.site, text: r.at.text, run: r}
	switch {
	case r.verdict == lost && r.reply.isFinal() && r.reply.status >= 400:
		for _, s := range r.steps {
			if s.stands() {
				c.site, c.text, c.instead = s.site, s.text, beside
				return c
			}
		}
	case r.verdict == lost && c.site == "":
		c.instead = "Do not call Execution.Free and do not answer 2xx, unless all is written before that."
		return c
	case r.verdict == lost:
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
	case r.fault == lostClaim:
		return "Pass on the context of the request: it ends when another process has taken the key over."
	case first.service:
		return "Write a row in the transaction of the request, and call the service after the commit by that row " +
			"(an outbox); or pass the Idempotency-Key on to a service that honors it."
	case first.late:
		return "Wait for the goroutine, and write in the transaction of the request, before the response."
	case r.joins.Load():
		return beside
	case r.freed.Load():
		return "Do not call Execution.Free, nor answer with a status of FreeOn, when anything was written."
	}
	return "Use joined mode (idem.Options.Join), or let a unique column of the row be made of the Idempotency-Key."
}
