package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Status is what became of a rule.
type Status string

const (
	Held    Status = "held"
	Broken  Status = "broken"
	Unclear Status = "unclear"  // it could not be found out
	Skipped Status = "skipped"  // something that the rule needs was not given
	LeftOut Status = "left out" // as asked for, or because the rule does not apply to this server
)

// A Result is a rule and what became of it. No key is in it.
type Result struct {
	Rule   Rule
	Status Status
	Detail string // why, unless the rule was held
	Curl   string // the request that shows it, as a line for a shell
	Got    string // what came
	Took   time.Duration

	missing []string // offers, when it was skipped for them
}

// Failed reports whether the result means that the check as a whole has
// failed. Strict takes a contract rule that was skipped for a failure, and
// advice takes a warning and a broken recommendation for one.
func (r Result) Failed(strict, advice bool) bool {
	if (r.Rule.Level == Reading || r.Rule.Level == Advice) && !advice {
		return false
	}
	return r.Status == Broken || r.Status == Unclear || strict && r.Status == Skipped && r.Rule.Level == Contract
}

// Run checks the rules that are wanted, several at a time, and reports them
// in the order of All.
func (s *Session) Run(ctx context.Context, wanted func(Rule) bool, report func(Result)) {
	all := All()
	results := make([]chan Result, len(all))
	for i := range all {
		results[i] = make(chan Result, 1)
	}
	go func() {
		for _, phase := range []phase{together, alone, last, end} {
			var wg sync.WaitGroup
			for i, r := range all {
				if r.when != phase {
					continue
				}
				s.places <- struct{}{}
				wg.Go(func() {
					defer func() { <-s.places }()
					if !wanted(r) {
						results[i] <- Result{Rule: r, Status: LeftOut, Detail: "not asked for"}
						return
					}
					results[i] <- s.check(ctx, r)
				})
				if phase != together {
					wg.Wait()
				}
			}
			wg.Wait()
		}
	}()
	for i := range all {
		report(<-results[i])
	}
}

// check checks one rule. It ends when ctx does, with Unclear.
func (s *Session) check(ctx context.Context, r Rule) Result {
	result := Result{Rule: r, Status: LeftOut}
	missing, without := s.missing(r)
	switch {
	case r.Level == Wire && !s.target.Wire:
		result.Detail = "a profile of its own, which no stock server keeps: ask for it with -wire or Target.Wire"
	case r.Level == Profile && s.target.Profile == "":
		result.Detail = "of a protocol: ask for it with -profile"
	case len(without) > 0:
		result.Detail = "the target does not offer " + offerText(without)
		if slices.Contains(without, "rate-limit") {
			result.Detail += s.limit.slow
		}
	case len(missing) > 0:
		result.Status, result.missing = Skipped, missing
		result.Detail = "it needs " + offerText(missing) +
			"; or say that the target does not offer it: without " + strings.Join(missing, ",")
	default:
		s.judge(ctx, &result)
	}
	return result
}

// judge runs the check of a rule.
func (s *Session) judge(ctx context.Context, result *Result) {
	late := result.Rule.when == end && ctx.Err() != nil
	if late {
		ctx = context.WithoutCancel(ctx) // what was seen in time counts
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &probe{Session: s, ctx: ctx}
	start := time.Now()
	result.Status = Held
	if end := ended(func() { result.Rule.check(p) }); end != nil {
		result.Status, result.Detail = end.status, s.redact.text(end.detail)
		result.Curl = s.redact.text(s.curl(end.answer.to))
		if end.answer.status != 0 {
			result.Got = s.redact.text(end.answer.String())
		}
	}
	if late && result.Status == Held {
		result.Status, result.Detail = Unclear, noTime
	}
	result.Took = time.Since(start)
}

// missing returns the needs of a rule that the target lacks, and those of them
// that it is said to lack.
func (s *Session) missing(r Rule) (missing, without []string) {
	for _, need := range r.needs {
		if s.has(need) {
			continue
		}
		missing = append(missing, need)
		if slices.Contains(s.target.Without, need) {
			without = append(without, need)
		}
	}
	return missing, without
}

// verdict is what a check panics with to end itself.
type verdict struct {
	status Status
	detail string
	answer answer
}

// ended returns the verdict that a check ended with, nil when it went through.
func ended(check func()) (end *verdict) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case verdict:
			end = &v
		default:
			panic(v)
		}
	}()
	check()
	return nil
}

const noTime = "there was no time left; a longer -timeout or Target.Timeout helps"

// probe is what a check works with. Its methods end the check when the server
// breaks the rule.
type probe struct {
	*Session
	ctx context.Context

	last struct {
		sync.Mutex
		answer answer
	}
}

// saw remembers the exchange that a verdict will show.
func (p *probe) saw(a answer) {
	p.last.Lock()
	defer p.last.Unlock()
	p.last.answer = a
}

// fault says that the server breaks the rule, and which exchange shows it.
// Without one, the last exchange does.
func (p *probe) fault(a answer, format string, args ...any) {
	if a.to.method != "" {
		p.saw(a)
	}
	p.end(Broken, format, args)
}

// vacuousf says that the rule does not apply to this server.
func (p *probe) vacuousf(format string, args ...any) { p.end(LeftOut, format, args) }

// skipf says that the server gave no occasion to look.
func (p *probe) skipf(format string, args ...any) { p.end(Skipped, format, args) }

func (p *probe) unclearf(format string, args ...any) { p.end(Unclear, format, args) }

func (p *probe) end(status Status, format string, args []any) {
	if p.ctx.Err() != nil {
		// What was seen then may be the end of the check itself.
		status, format, args = Unclear, noTime, nil
	}
	p.last.Lock()
	defer p.last.Unlock()
	panic(verdict{status, fmt.Sprintf(format, args...), p.last.answer})
}

// noAnswer ends a check that got no response where one was due.
func (p *probe) noAnswer(r request, err error) {
	p.fault(answer{to: r}, "got no response: %v", err)
}

// timeLeft is how much longer the check may take.
func (p *probe) timeLeft() (time.Duration, bool) {
	deadline, ok := p.ctx.Deadline()
	return time.Until(deadline), ok
}

// sleep waits, but not longer than the check may take.
func (p *probe) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
		p.unclearf("there was no time left to wait %v", d)
	}
}

// parallel runs n calls at once and then ends the check if one of them did.
func (p *probe) parallel(n int, call func(i int)) {
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

// each calls f for all, several at a time where other checks leave room for it.
func each[T any](p *probe, all []T, f func(T)) {
	workers := 1
	defer func() {
		for range workers - 1 {
			<-p.places
		}
	}()
	for room := true; room && workers < len(all); {
		select {
		case p.places <- struct{}{}:
			workers++
		default:
			room = false
		}
	}
	var next atomic.Int64
	verdicts := make([]*verdict, len(all))
	p.parallel(workers, func(int) {
		for i := next.Add(1) - 1; int(i) < len(all); i = next.Add(1) - 1 {
			if verdicts[i] = ended(func() { f(all[i]) }); verdicts[i] != nil {
				return
			}
		}
	})
	for _, v := range verdicts {
		if v != nil {
			panic(*v) // the first in the list, so that every run reports the same
		}
	}
}

// Explain says what the server did, what the rule asks for and what may be
// wrong, in several lines.
func (r Result) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.Status, r.Detail)
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n  %-8s %s", what, text)
		}
	}
	line("request", r.Curl)
	line("response", r.Got)
	if r.Status == Skipped {
		return b.String()
	}
	line("rule", r.Rule.Text+" ("+r.Rule.Source+")")
	line("hint", r.Rule.Hint)
	return b.String()
}
