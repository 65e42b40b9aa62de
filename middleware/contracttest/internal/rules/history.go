package rules

// history is what was sent under one idempotency key, and what came of it: the
// model of a create and its repeats, by which each response is judged.
type history struct {
	p    *probe
	sent []step
}

type step struct {
	creation creation
	answer   answer
	watch    watch
}

// send sends a create under the key of the history. The same request gets the
// response that it got, or stays refused. Another route refuses it, or makes a
// resource of its own. What is refused makes nothing, now and to the end.
func (h *history) send(what string, c creation) answer {
	now := step{creation: c, watch: h.p.watch(c)}
	now.answer = h.p.do(c.request)
	a, told := now.answer, false
	for _, before := range h.sent {
		first, same := before.answer, before.creation.body == c.body && before.creation.path == c.path
		told = told || before.creation.marker == c.marker
		switch {
		case same && first.ok():
			h.p.wantSame(what, a, first)
		case same && (first.status == 400 || first.status == 422) && a.ok():
			h.p.fault(a, "%s, which was answered %d, got %d", what, first.status, a.status)
		case before.creation.path != c.path && first.ok() && a.ok() && (a.body != first.body || now.watch.count() == 0):
			h.p.wantOther(what, a, first)
		}
	}
	if a.class() == 4 && !told {
		h.p.expect(c, 0)
		now.watch.most(0, "after "+what+" was refused")
	}
	h.sent = append(h.sent, now)
	return a
}

// wantOne wants the first create to have made one resource.
func (h *history) wantOne(what string) { h.sent[0].watch.exactly(1, what) }
