package rules

import "strings"

// want ends the check unless the status is that of the contract.
func (p *probe) want(what string, a answer, status int) answer {
	if a.status != status {
		p.fault(a, "%s: got %d, want %d", what, a.status, status)
	}
	return a
}

func (p *probe) wantOK(what string, a answer) answer {
	if !a.ok() {
		p.fault(a, "%s: got %d, want a 2xx", what, a.status)
	}
	return a
}

func (p *probe) wantSame(what string, a, original answer) {
	if d := a.difference(original); d != "" {
		p.fault(a, "%s is not the original response: %s", what, d)
	}
}

// wantID ends the check unless there is exactly one request id.
func (p *probe) wantID(what string, a answer) string {
	ids := a.header.Values(p.target.RequestIDHeader)
	if len(ids) != 1 || strings.TrimSpace(ids[0]) == "" {
		p.fault(a, "%s: the %d has %s %q, want one value", what, a.status, p.target.RequestIDHeader, ids)
	}
	return ids[0]
}

// wantOther ends the check unless two responses are about two resources.
func (p *probe) wantOther(what string, a, first answer) {
	if p.echoes && a.to.body == first.to.body {
		return
	}
	if !p.silent && a.ok() && a.body == first.body && a.location() == first.location() {
		p.fault(a, "%s got the response of the first create", what)
	}
}
