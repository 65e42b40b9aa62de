package rules_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// TestProfiles: the reference server keeps the contract, and of each protocol
// what it happens to do.
func TestProfiles(t *testing.T) {
	for _, tt := range []struct{ profile, defect, broken, held string }{
		{"acp", "", "echo equality key", "mismatch"},
		{"acp", "idem-other-body-409", "echo equality key mismatch", ""},
		{"acp", "idem-other-body", "echo key mismatch", "equality"}, // any body is the same
		{"ucp", "", "equality mismatch", ""},
		{"ucp", "idem-other-body-409", "", "equality mismatch"},
		{"ucp", "idem-other-body", "equality mismatch", ""},
		{"iceberg", "", "", "key uuid7"},
		{"iceberg", "free-must-key", "key", "uuid7"},
		{"", "", "", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			to := target()
			to.Profile = tt.profile
			results := run(t, newServer(strings.Fields(tt.defect)...).Configure, to,
				func(r rules.Rule) bool { return r.Level == rules.Profile })
			got := make(map[rules.Status][]string)
			for name, r := range results {
				if name, is := strings.CutPrefix(name, "profile/"); is {
					got[r.Status] = append(got[r.Status], name)
				}
			}
			for status, want := range map[rules.Status]string{rules.Broken: tt.broken, rules.Held: tt.held} {
				slices.Sort(got[status])
				if names := strings.Join(got[status], " "); names != want {
					t.Errorf("%s, %s: %s is %q, want %q", tt.profile, tt.defect, status, names, want)
				}
			}
		})
	}
	to := target()
	to.Profile = "stripe"
	_, err := rules.Open(t.Context(), to)
	if want := `there is no profile called "stripe"; the names are acp, iceberg, ucp`; err == nil || err.Error() != want {
		t.Errorf("an unknown profile: got %v, want %s", err, want)
	}
}
