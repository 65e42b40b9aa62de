package retrytest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// outcome is what a create under a fault has come to.
type outcome string

const (
	once    outcome = "once"
	twice   outcome = "twice"
	lost    outcome = "lost"
	unknown outcome = "unknown" // the client is told so, or that it failed
)

// verdict is the outcome of a run. If that is twice or lost, it has what is
// wrong, which statement of the host's code is to blame, if one is, and what to
// write in its place.
type verdict struct {
	outcome
	wrong   string
	culprit place
	instead string
}

// judge compares a run with one without a fault.
func (r *run) judge(learned *run) (v verdict) {
	switch v.outcome, v.wrong = r.compare(learned); v.outcome {
	case twice:
		v.culprit, v.instead = r.blameTwice(learned)
	case lost:
		v.culprit, v.instead = r.blameLost(learned)
	}
	if there := learned.statements(v.culprit.site); len(there) > 0 && !slices.Contains(there, v.culprit) {
		v.culprit.text = there[0].text // one finding, although the text changes from run to run
	}
	return v
}

// statements returns those of a line.
func (r *run) statements(site string) (all []place) {
	for _, s := range r.steps {
		if s.site == site {
			all = append(all, s.statement())
		}
	}
	return all
}

// compare returns the outcome, and what is wrong with the effects or the answer.
func (r *run) compare(learned *run) (outcome, string) {
	most := 0
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(r.added)) {
		if n, want := r.added[name], learned.added[name]; n != want {
			wrong = append(wrong, fmt.Sprintf("%d %s in place of %d", n, name, want))
			most = max(most, n-want)
		}
	}
	// The client of a joined create is told of what it has added: not that it
	// failed if that is a part, and not by a refusal of the handler's own if all.
	// Nor does a handler that is run again refuse what it has added itself.
	own := !strings.Contains(r.reply.body, `"idempotency_`)
	denied := r.adds() && (r.joins.Load() && (wrong != nil || own) || r.reexecutes.Load() && own && r.reply.status < 500)
	switch ok := r.reply.status < 400; {
	case most > 0:
		return twice, strings.Join(wrong, ", ")
	case !r.reply.isFinal():
		return lost, "the client never gets an answer that is final, but " + r.reply.String()
	case ok && wrong == nil:
		return once, ""
	case ok:
		return lost, strings.Join(wrong, ", ")
	case denied:
		return lost, strings.Join(append(wrong, "the client is told "+r.reply.String()), ", and ")
	}
	return unknown, ""
}

// blameLost finds the step that stands although its client is told of a failure,
// or else the one that the fault was at.
func (r *run) blameLost(learned *run) (culprit place, instead string) {
	at := r.at.statement()
	switch {
	case r.reply.isFinal() && r.reply.status >= 400:
		for _, s := range r.steps {
			if s.stands() && r.joins.Load() {
				return s.statement(), beside
			} else if s.stands() {
				return s.statement(), "Where this was done by an earlier attempt, answer as that would have: " +
					"store the Idempotency-Key with the row, read it back and answer 2xx."
			}
		}
		return r.blameTwice(learned)
	case at.site == "":
		return at, "Do not call Execution.Free and do not answer 2xx, unless all is written before that."
	}
	return at, "The client is told that it was done: answer 500 when this fails, and write nothing after the response."
}

// blameTwice finds the first step that was taken twice and whose effect a
// rollback does not undo, by its text or by its line, or else the one that the
// fault was at.
func (r *run) blameTwice(learned *run) (culprit place, instead string) {
	byText := func(s *step) place { return s.statement() }
	byLine := func(s *step) place {
		return place{site: s.site, line: s.line % max(1, len(learned.statements(s.site)))}
	}
	for _, key := range []func(*step) place{byText, byLine} {
		seen := map[place]*step{}
		for _, s := range r.steps {
			if !s.stands() {
				continue
			}
			if first := seen[key(s)]; first != nil {
				return s.statement(), r.instead(first, s)
			}
			seen[key(s)] = s
		}
	}
	if r.at.site != "" { // else one culprit, whichever the step
		culprit = r.at.statement()
	}
	return culprit, "What was done twice is no statement that is known here: open its database with Process.DB, " +
		"or tell of the service's calls by Process.Conn."
}

// beside says what to write in place of a step beside a joined transaction.
const beside = "Write with the transaction of the request, idemsql.Tx(r.Context()) or idempgx.Tx(r.Context()): " +
	"this one stands when the reply does not."

// stands reports whether the host's code has changed something by a step that no
// transaction of the stages undoes.
func (s *step) stands() bool {
	prevented := s.fault == breakBefore || s.fault == refused || s.fault == crashBefore
	return s.site != "" && !s.joined && !prevented && !reading.MatchString(s.text)
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
