package rules

import (
	"context"
	"fmt"
	"time"
)

// Status is what became of a rule.
type Status string

// The statuses.
const (
	Held    Status = "held"
	Broken  Status = "broken"
	Skipped Status = "skipped" // what it needs was not given, or the server gave no occasion
	Unclear Status = "unclear" // it could not be found out
)

// A Result is a rule and what became of it.
type Result struct {
	Rule   Rule
	Status Status
	Detail string // why, unless the rule was held
	Took   time.Duration
}

// Check checks one rule. It ends when ctx does, with Unclear.
func (s *Session) Check(ctx context.Context, r Rule) (result Result) {
	result = Result{Rule: r, Status: Held}
	if lack := r.needs &^ s.have; lack != 0 {
		result.Status, result.Detail = Skipped, "it needs "+lack.String()
		return result
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	defer func() {
		result.Took = time.Since(start)
		if p := recover(); p != nil {
			v, ok := p.(verdict)
			if !ok {
				panic(p)
			}
			result.Status, result.Detail = v.status, v.detail
		}
	}()
	r.check(&probe{Session: s, ctx: ctx})
	return result
}

// verdict is what a check panics with to end itself.
type verdict struct {
	status Status
	detail string
}

// probe is what a check works with. Its methods end the check when the server breaks the rule.
type probe struct {
	*Session
	ctx context.Context
}

func (p *probe) failf(format string, args ...any) { p.end(Broken, format, args) }

// skipf says that the server gave no occasion to look.
func (p *probe) skipf(format string, args ...any) { p.end(Skipped, format, args) }

func (p *probe) unclearf(format string, args ...any) { p.end(Unclear, format, args) }

func (p *probe) end(status Status, format string, args []any) {
	panic(verdict{status, fmt.Sprintf(format, args...)})
}

// noAnswer ends a check that got no response where one was due.
func (p *probe) noAnswer(what string, err error) {
	p.inTime()
	p.failf("%s: got no response: %v", what, err)
}

// inTime ends a check whose time is over: what it saw then was its own end.
func (p *probe) inTime() {
	if p.ctx.Err() != nil {
		p.unclearf("there was no time left")
	}
}

// sleep waits, but not longer than the check may take.
func (p *probe) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
		p.unclearf("there was no time left to wait %v", d)
	}
}

// together runs n calls at once and then ends the check if one of them did.
func (p *probe) together(n int, call func(i int)) {
	verdicts := make(chan any, n)
	for i := range n {
		go func() {
			defer func() { verdicts <- recover() }()
			call(i)
		}()
	}
	var first any
	for range n {
		if v := <-verdicts; first == nil {
			first = v
		}
	}
	if first != nil {
		panic(first)
	}
}
