package idemtest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/leftout"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

func TestFaultyWithoutFaults(t *testing.T) {
	for name, store := range map[string]func() idem.Store{
		"store":   func() idem.Store { return idemtest.NewFaulty(&idem.Memory{}) },
		"counter": func() idem.Store { return idemtest.NewFaultyCounter(&idem.Memory{}) },
	} {
		t.Run(name, func(t *testing.T) {
			idemtest.Suite{New: func(t *testing.T) idem.Store { return store() }, Bubble: true}.Run(t)
		})
	}
}

func suiteOf(flaw string) idemtest.Suite {
	return idemtest.Suite{
		New:     func(t *testing.T) idem.Store { return newModel(flaw) },
		Advance: func(t *testing.T, s idem.Store, d time.Duration) { s.(*model).advance(d) },
		Bubble:  true, // a caller that sleeps lets all others come first
		Write:   writeRow,
		Rows:    rowsOf,
	}
}

func TestModel(t *testing.T) { suiteOf("").Run(t) }

func TestSkip(t *testing.T) {
	s := suiteOf("never forgets")
	s.Skip = map[string]string{}
	var skipped []string
	for _, rule := range idemtest.Rules() {
		if s.Check(t, rule) != nil {
			s.Skip[rule], skipped = "the store never forgets", append(skipped, rule)
		}
	}
	if len(s.Skip) == 0 {
		t.Fatal("no rule trips over a store that never forgets")
	}
	leftout.Run(t, s.Run, skipped...)
}

// Each flaw trips the rules that stand beside it, and each rule stands beside a
// flaw.
type flaw struct {
	flaw  string
	rules []string
}

var flaws = []flaw{
	{"refuses new keys", []string{"race", "two-keys"}},
	{"forgets fingerprints", []string{"resent-begin", "in-flight", "finished"}},
	{"reads, then claims", []string{"race"}},
	{"does not know its own token", []string{"resent-begin", "resent-begin-race"}},
	{"counts a resent Begin as an attempt", []string{"resent-begin"}},
	{"does not renew for a resent Begin", []string{"late-begin"}},
	{"knows its own token only while the lease is live", []string{"late-begin"}},
	{"takes over what is live", []string{"in-flight", "take-over", "late-extend", "take-over-race"}},
	{"does not say what is left of the lease", []string{"in-flight"}},
	{"says the asker's lease", []string{"in-flight"}},
	{"answers with the asker's fingerprint", []string{"in-flight", "free"}},
	{"takes all keys for one", []string{"two-keys"}},
	{"cuts keys at 16 bytes", []string{"key-bytes"}},
	{"cuts keys at a zero byte", []string{"key-bytes"}},
	{"claims for a dead context by a token of its own", []string{"cancelled-context"}},
	{"answers a dead context with a refusal", []string{"cancelled-context"}},
	{"extends nothing for a dead context, and says lost", []string{"cancelled-context"}},
	{"erases what has lapsed", []string{"lapsed-lease", "late-settle", "take-over", "retention-of-claim"}},
	{"runs again what is unknown", []string{"lapsed-lease", "unknown-outcome", "take-over-by-another-request"}},
	{"forgets a claim with its lease", []string{"lapsed-lease", "late-settle", "late-release", "retention-of-claim"}},
	{"mixes up lease and retention", []string{"lapsed-lease", "take-over", "foreign-token"}},
	{"extends nothing", []string{"extend", "lease-outlasts-retention", "late-extend"}},
	{"does not extend what has lapsed", []string{"late-extend"}},
	{"renews what is unknown", []string{"told-unknown", "unknown-races-extend"}},
	{"grants again to who holds what is unknown", []string{"told-unknown"}},
	{"never renews what was unknown", []string{"told-unknown"}},
	{"says unknown, then marks", []string{"unknown-races-extend"}},
	{"extends for any token", []string{"foreign-token", "stale-extend"}},
	{"extends what is settled", []string{"extend-after-settle"}},
	{"extends what is not there", []string{"nothing-there"}},
	{"lets the retention end a live lease", []string{"lease-outlasts-retention"}},
	{"does not settle what has lapsed", []string{"late-settle"}},
	{"does not free what has lapsed", []string{"late-release"}},
	{"settles for any token", []string{"foreign-token", "stale-settle", "two-keys"}},
	{"frees for any token", []string{"foreign-token", "stale-release"}},
	{"settles what is not there", []string{"nothing-there"}},
	{"takes nothing there for freed", []string{"nothing-there", "free"}},
	{"does not take over", []string{"take-over", "take-over-race"}},
	{"takes over lapsed claims only", []string{"take-over-of-unknown"}},
	{"lets any request take over", []string{"take-over-by-another-request"}},
	{"takes over what is done", []string{"take-over-of-done"}},
	{"reads, then takes over", []string{"take-over-race"}},
	{"keeps the old token at a take-over", []string{"take-over", "stale-settle", "stale-begin"}},
	{"always says attempt 1", []string{"take-over", "take-over-race"}},
	{"reads, then settles", []string{"settle-races-take-over"}},
	{"settles once only", []string{"resent-settle"}},
	{"settles as often as it is told", []string{"settled-twice"}},
	{"tells nil from empty", []string{"empty-payload"}},
	{"frees what was taken over", []string{"take-over-freed", "units-take-over-freed"}},
	{"keeps what was freed", []string{"free", "late-release"}},
	{"takes unknown for freed", []string{"unknown-outcome", "take-over-of-unknown"}},
	{"takes no payload for no answer", []string{"empty-payload"}},
	{"does not say that it is whole", []string{"finished"}},
	{"keeps payloads as Summaries", []string{"finished"}},
	{"keeps payloads as text", []string{"odd-bytes", "big-payload"}},
	{"cuts payloads at 64 KiB", []string{"big-payload"}},
	{"never forgets", []string{"retention-of-reply", "retention-of-unknown", "retention-of-claim",
		"retention-may-shorten"}},
	{"keeps the claim's retention", []string{"retention-restarts", "retention-may-shorten", "retention-of-reply"}},
	{"never shortens a retention", []string{"retention-may-shorten"}},
	{"does not remember longer for a take-over", []string{"retention-of-taker"}},
	{"does not remember longer for a resent Begin", []string{"retention-of-taker"}},
	{"erases nothing", []string{"erase"}},
	{"erases replies only", []string{"erase"}},
	{"erases the replies of all", []string{"erase"}},
	{"loses rows", []string{"join-commit", "join-isolation", "join-outlives-context"}},
	{"rolls nothing back", []string{"join-rollback"}},
	{"rolls the answer back too", []string{"join-rollback"}},
	{"keeps rows that were rolled back", []string{"join-not-started"}},
	{"shows rows at once", []string{"join-isolation"}},
	{"joins beside an open transaction", []string{"join-in-flight", "join-race"}},
	{"fails while a transaction is open", []string{"join-in-flight", "join-race"}},
	{"joins without looking at leases", []string{"join-sees-leases"}},
	{"renews what a Join said to be unknown", []string{"join-sees-leases"}},
	{"takes over for good", []string{"join-take-over"}},
	{"ends a transaction with the context of Join", []string{"join-outlives-context"}},
	{"holds the key for a dead Join", []string{"join-cancelled-context"}},
	{"keeps joined answers for ever", []string{"join-retention"}},
	{"keeps the turn of what was not started", []string{"join-turns"}},
	{"keeps the turn of a Join that gets none", []string{"join-turns"}},
}

func TestFlawsTripRules(t *testing.T) {
	untripped := map[string]bool{}
	for _, rule := range idemtest.Rules() {
		untripped[rule] = true
	}
	if n := len(idemtest.Rules()); n != len(untripped) {
		t.Errorf("%d rules have %d names", n, len(untripped))
	}
	for _, f := range slices.Concat(flaws, unitFlaws) {
		for _, rule := range f.rules {
			delete(untripped, rule)
			if suiteOf(f.flaw).Check(t, rule) == nil {
				t.Errorf("a store that %s passes the rule %s", f.flaw, rule)
			}
		}
	}
	for rule := range untripped {
		t.Errorf("no flaw trips the rule %s", rule)
	}
}
