package scope_test

import (
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/scope"
)

func TestDefault(t *testing.T) {
	const want = "account:read workers:read workers:write tasks:read tasks:write tasks:cancel approvals:write " +
		"deliverables:read deliverables:write chat:read chat:write knowledge:read knowledge:write integrations:read " +
		"integrations:write webhooks:write"
	if got := scope.Default().String(); got != want {
		t.Errorf("Default() has %s, want %s", got, want)
	}
	for _, d := range scope.Default().Definitions() {
		if d.Meaning == "" || d.Meaning[len(d.Meaning)-1] != '.' {
			t.Errorf("the meaning of %s is %q, want a sentence", d.Name, d.Meaning)
		}
		if len(d.Implies) > 0 {
			t.Errorf("%s implies %q, want nothing implied unless a registry is told to", d.Name, d.Implies)
		}
	}
	if first, second := scope.Default(), scope.Default(); first != second {
		t.Error("Default() returned two registries, want always the same")
	}
}

func TestExternalWorker(t *testing.T) {
	want := []scope.Name{"deliverables:write", "chat:read", "chat:write"}
	if got := scope.ExternalWorker(); !slices.Equal(got, want) {
		t.Errorf("ExternalWorker() = %q, want %q", got, want)
	}
	scope.ExternalWorker()[0] = scope.WebhooksWrite
	if got := scope.ExternalWorker(); !slices.Equal(got, want) {
		t.Errorf("ExternalWorker() after a caller changed its slice = %q, want %q", got, want)
	}
	set(t, scope.Default(), scope.ExternalWorker()...)
}
