package rules

import "testing"

// What rules have in common is told once, what is broken first.
func TestCauses(t *testing.T) {
	result := func(name string, level Level, status Status, detail string, missing ...string) Result {
		return Result{Rule: Rule{Name: name, Level: level}, Status: status, Detail: detail, missing: missing}
	}
	causes := Causes([]Result{
		result("auth/one", Contract, Held, ""),
		result("auth/two", Advice, Broken, "a GET: got 404, want 401"),
		result("scope/one", Contract, Skipped, "it needs a key", "none", "create"),
		result("scope/two", Contract, Skipped, "it needs another", "none"),
		result("scope/six", Contract, Skipped, "it needs a key", "other"),
		result("scope/three", Contract, Unclear, "the server asks to wait for 33s"),
		result("auth/four", Contract, Unclear, "the server asks to wait for 34s"),
		result("auth/five", Contract, Broken, "a GET: got 200, want 401"),
		result("wire/one", Wire, Broken, "a GET: got 200, want 401"),
		result("scope/four", Contract, Broken, "a GET: got 200, want 401"),
		result("auth/six", Contract, Broken, `a HEAD of "x": got 200, want 401`),
		result("auth/seven", Contract, Broken, "no response"),
		result("auth/eight", Advice, Unclear, "no response"),
		result("auth/nine", Contract, LeftOut, "no response"),
	})
	want := [][2]string{
		{"auth/five", "auth/six"}, {"scope/four", ""}, {"auth/seven", ""}, {"wire/one", ""}, {"scope/three", "auth/four"},
		{"scope/one", "scope/two"}, {"scope/six", ""}, {"auth/two", ""},
	}
	if len(causes) != len(want) {
		t.Fatalf("got %d causes, want %d", len(causes), len(want))
	}
	for i, cause := range causes {
		if got := [2]string{cause[0].Rule.Name, cause.Others()}; got != want[i] {
			t.Errorf("cause %d: got %q, want %q", i, got, want[i])
		}
	}
}
