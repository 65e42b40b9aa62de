//go:build !race

package rules_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// A factor is something that a target may give in several ways.
type factor struct {
	name   string
	values int
}

// factors are what a target may offer: each key beside full, 0 to 2 routes
// that create, their lists and a rate limit. Then they are the ways to say the
// same: the other fields of a Target, and what is not offered, named or not.
func factors() []factor {
	var all []factor
	for _, name := range rules.KeyNames() {
		if name != "full" {
			all = append(all, factor{name, 2})
		}
	}
	return append(all, factor{"creates", 3}, factor{"list", 2}, factor{"second-list", 2}, factor{"rate-limit", 2},
		factor{"template", 3}, factor{"type", 2}, factor{"base", 2}, factor{"read", 2}, factor{"id", 2},
		factor{"wire", 2}, factor{"without", 2})
}

// A subset has a value of each factor.
type subset []int

func (s subset) of(name string) int {
	return s[slices.IndexFunc(factors(), func(f factor) bool { return f.name == name })]
}

// tuples calls f with each combination of size values that the subset has, at
// once the name of the combination.
func (s subset) tuples(size int, f func(string)) {
	var choose func(from int, name string, left int)
	choose = func(from int, name string, left int) {
		if left == 0 {
			f(name)
			return
		}
		for i := from; i < len(s); i++ {
			choose(i+1, fmt.Sprintf("%s %d=%d", name, i, s[i]), left-1)
		}
	}
	choose(0, "", size)
}

// subsets returns n subsets that have all pairs of values, and as many threes
// as a simple search finds. They are the same in every run.
func subsets(n int) (all []subset) {
	random := rand.New(rand.NewPCG(1, 2))
	covered := make(map[string]bool)
	size := func() int { return 2 + min(1, len(all)/(n/2)) }
	for len(all) < n {
		var best subset
		most := -1
		for range 20 {
			var s subset
			for _, f := range factors() {
				s = append(s, random.IntN(f.values))
			}
			fresh := 0
			s.tuples(size(), func(name string) {
				if !covered[name] {
					fresh++
				}
			})
			if fresh > most {
				best, most = s, fresh
			}
		}
		all = append(all, best)
		for size := range 2 {
			best.tuples(2+size, func(name string) { covered[name] = true })
		}
	}
	return all
}

// target is what the subset describes of the reference server.
func (s subset) target() rules.Target {
	to := target()
	var lacks []string
	for _, name := range rules.KeyNames() {
		if name != "full" && s.of(name) == 0 {
			lacks = append(lacks, name)
			to.Keys[name] = "" // as contracttest.Keys has it
			if s.of("id") == 1 {
				delete(to.Keys, name) // as a keys file has it
			}
		}
	}
	to.Creates = to.Creates[:s.of("creates")]
	for i, names := range [][2]string{{"create", "list"}, {"second-create", "second-list"}} {
		if i >= len(to.Creates) {
			lacks = append(lacks, names[:]...)
			continue
		}
		to.Creates[i].Body = []string{`{"title":"{{random}}"}`, `{"title":"{{uuid}}"}`, `{"title":"t"}`}[s.of("template")]
		if s.of("type") == 1 {
			to.Creates[i].Type = "application/json; charset=utf-8"
		}
		if s.of(names[1]) == 0 {
			lacks = append(lacks, names[1])
			to.Creates[i].List = ""
		}
	}
	if s.of("rate-limit") == 0 {
		lacks = append(lacks, "rate-limit")
	}
	if s.of("base") == 1 {
		to.Base = "/api/v1/"
	}
	if s.of("read") == 1 {
		to.Read = reference.Account + "?view=all"
	}
	if s.of("id") == 1 {
		to.RequestIDHeader = "svc-request-id"
	}
	to.Wire = s.of("wire") == 1
	if s.of("without") == 1 {
		to.Without = lacks
	}
	return to
}

func (s subset) String() string {
	var parts []string
	for i, f := range factors() {
		parts = append(parts, fmt.Sprintf("%s=%d", f.name, s[i]))
	}
	return strings.Join(parts, " ")
}

// alike are the rules that cannot tell creates apart where all bodies are the
// same, and say so.
var alike = []string{"idempotency/letters", "idempotency/at-the-end", "organization/connection"}

// want is what has to become of a rule.
func (s subset) want(to rules.Target, r rules.Rule) rules.Status {
	offered := map[string]bool{
		"create": len(to.Creates) > 0, "second-create": len(to.Creates) > 1, "rate-limit": s.of("rate-limit") == 1,
		"list":        len(to.Creates) > 0 && to.Creates[0].List != "",
		"second-list": len(to.Creates) > 1 && to.Creates[1].List != "",
	}
	if r.Level == rules.Profile {
		return rules.LeftOut
	}
	lacking := rules.Skipped
	if s.of("without") == 1 {
		lacking = rules.LeftOut
	}
	for _, need := range r.Needs() {
		if !offered[need] && to.Keys[need] == "" {
			return lacking
		}
	}
	switch {
	case r.Level == rules.Wire && !to.Wire:
		return rules.LeftOut
	case (r.Name == "ratelimit/retry-after" || r.Name == "ratelimit/usable-wait") && !offered["rate-limit"]:
		return lacking
	case s.of("template") == 2 && slices.Contains(alike, r.Name):
		return rules.LeftOut
	}
	return rules.Held
}

// judges are the rules that judge what the first look has seen. It has read with
// each key that auth/live-key creates with.
var judges = []string{"auth/live-key", "ratelimit/status", "ratelimit/wait-helps", "ratelimit/not-longer",
	"ratelimit/whole-seconds", "ratelimit/overload", "ratelimit/request-id"}

// Whatever a target offers, a server that keeps the contract breaks no rule,
// and each rule whose needs are met is held, having sent something.
func TestSubsetsWork(t *testing.T) {
	all := subsets(64)
	pairs := make(map[string]bool)
	for _, s := range all {
		s.tuples(2, func(name string) { pairs[name] = true })
	}
	want, values := 0, 0
	for _, f := range factors() {
		want, values = want+values*f.values, values+f.values
	}
	if len(pairs) != want {
		t.Fatalf("%d subsets have %d of %d pairs", len(all), len(pairs), want)
	}
	var ran atomic.Int64
	t.Cleanup(func() { t.Logf("%d rules ran on %d subsets", ran.Load(), len(all)) })
	for i, s := range all {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, to := newServer(), s.target()
				server.Delay = time.Millisecond // so that what sends something takes time
				server.Limit *= s.of("rate-limit")
				var must []string
				defer func() {
					if t.Failed() {
						t.Logf("%s\nmust run: %s", s, cmp.Or(strings.Join(must, " "), "none"))
					}
				}()
				results := run(t, server.Configure, to, every)
				for _, r := range rules.All() {
					got := results[r.Name]
					want := s.want(to, r)
					if want == rules.Held {
						must = append(must, r.Name)
					}
					judged := r.JudgesAll() || slices.Contains(judges, r.Name)
					switch {
					case got.Status != want && r.Level != rules.Wire:
						t.Errorf("%s is %s, want %s: %s", r.Name, got.Status, want, got.Explain())
					case got.Status == rules.Held && got.Took == 0 && !judged:
						t.Errorf("%s is held and has sent nothing", r.Name)
					}
				}
				ran.Add(int64(len(must)))
			})
		})
	}
}
