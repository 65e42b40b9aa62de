//go:build !race

package rules_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// A subset has a value of each factor: of something that a target may give in
// several ways.
type subset map[string]int

// factors are what a target may offer, with the number of values of each: the keys
// beside full, 0 to 2 routes that create, their lists and a rate limit. Then they
// are the ways to say the same: the other fields of a Target, and what is not
// offered, named or not.
func factors() subset {
	all := subset{"creates": 3, "list": 2, "second-list": 2, "rate-limit": 2, "template": 3, "type": 2, "base": 2,
		"read": 2, "id": 2, "wire": 2, "without": 2}
	for _, name := range rules.KeyNames() {
		if name != "full" {
			all[name] = 2
		}
	}
	return all
}

// subsets returns n subsets, which are the same in every run, and fails unless they
// have all pairs of values.
func subsets(t *testing.T, n int) []subset {
	random, values := rand.New(rand.NewPCG(1, 1)), factors()
	names := slices.Sorted(maps.Keys(values))
	all, want, pairs := make([]subset, n), 0, make(map[string]bool)
	for i := range all {
		all[i] = make(subset)
		for _, name := range names {
			all[i][name] = random.IntN(values[name])
		}
	}
	for i, one := range names {
		for _, two := range names[:i] {
			want += values[one] * values[two]
			for _, s := range all {
				pairs[fmt.Sprint(one, s[one], two, s[two])] = true
			}
		}
	}
	if len(pairs) != want {
		t.Fatalf("%d subsets have %d of %d pairs", n, len(pairs), want)
	}
	return all
}

// target is what the subset describes of the reference server.
func (s subset) target() rules.Target {
	to := target()
	var lacks []string
	for _, name := range rules.KeyNames() {
		if name != "full" && s[name] == 0 {
			lacks = append(lacks, name)
			to.Keys[name] = "" // as contracttest.Keys has it
			if s["id"] == 1 {
				delete(to.Keys, name) // as a keys file has it
			}
		}
	}
	to.Creates = to.Creates[:s["creates"]]
	for i, names := range [][2]string{{"create", "list"}, {"second-create", "second-list"}} {
		if i >= len(to.Creates) {
			lacks = append(lacks, names[:]...)
			continue
		}
		to.Creates[i].Body = []string{`{"title":"{{random}}"}`, `{"title":"{{uuid}}"}`, `{"title":"t"}`}[s["template"]]
		if s["type"] == 1 {
			to.Creates[i].Type = "application/json; charset=utf-8"
		}
		if s[names[1]] == 0 {
			lacks = append(lacks, names[1])
			to.Creates[i].List = ""
		}
	}
	if s["rate-limit"] == 0 {
		lacks = append(lacks, "rate-limit")
	}
	if s["base"] == 1 {
		to.Base = "/api/v1/"
	}
	if s["read"] == 1 {
		to.Read = reference.Account + "?view=all"
	}
	if s["id"] == 1 {
		to.RequestIDHeader = "svc-request-id"
	}
	to.Wire = s["wire"] == 1
	if s["without"] == 1 {
		to.Without = lacks
	}
	return to
}

// alike are the rules that cannot tell creates apart where all bodies are the
// same, and say so.
var alike = []string{"idempotency/letters", "idempotency/at-the-end", "organization/connection"}

// want is what has to become of a rule.
func (s subset) want(to rules.Target, r rules.Rule) rules.Status {
	offered := map[string]bool{
		"create": len(to.Creates) > 0, "second-create": len(to.Creates) > 1, "rate-limit": s["rate-limit"] == 1,
		"list":        len(to.Creates) > 0 && to.Creates[0].List != "",
		"second-list": len(to.Creates) > 1 && to.Creates[1].List != "",
	}
	if r.Level == rules.Profile {
		return rules.LeftOut
	}
	lacking := rules.Skipped
	if s["without"] == 1 {
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
	case s["template"] == 2 && slices.Contains(alike, r.Name):
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
	for i, s := range subsets(t, 48) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, to := newServer(), s.target()
				server.Delay = time.Millisecond // so that what sends something takes time
				server.Limit *= s["rate-limit"]
				defer func() {
					if t.Failed() {
						t.Log(s)
					}
				}()
				results := run(t, server.Configure, to, every)
				for _, r := range rules.All() {
					got, want := results[r.Name], s.want(to, r)
					judged := r.JudgesAll() || slices.Contains(judges, r.Name)
					switch {
					case got.Status != want && r.Level != rules.Wire:
						t.Errorf("%s is %s, want %s: %s", r.Name, got.Status, want, got.Explain())
					case got.Status == rules.Held && got.Took == 0 && !judged:
						t.Errorf("%s is held and has sent nothing", r.Name)
					}
				}
			})
		})
	}
}
