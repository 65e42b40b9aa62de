package scope_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/scope"
)

func TestSuggest(t *testing.T) {
	for _, c := range []struct{ name, want scope.Name }{
		{"task:read", scope.TasksRead},
		{"tasks:raed", scope.TasksRead},
		{"tasks.write", scope.TasksWrite},
		{"TASKS:READ", scope.TasksRead},
		{" tasks:read\n", scope.TasksRead},
		{"worker:write", scope.WorkersWrite},
		{"tasks:cancell", scope.TasksCancel},
		{"webhook:write", scope.WebhooksWrite},
		{"chat:reda", scope.ChatRead},
		{"tasks:read", scope.TasksRead},
		{"tasks:*", ""},
		{"future:thing", ""},
		{"*", ""},
		{"", ""},
	} {
		got, ok := scope.Default().Suggest(c.name)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Suggest(%q) = %q, %v, want %q", c.name, got, ok, c.want)
		}
	}
}

// The edge of what counts as a misspelling: two letters, and 64 characters.
func TestSuggestBounds(t *testing.T) {
	long := scope.Name(strings.Repeat("x", 64))
	r := scope.New(scope.Definition{Name: "ab"}, scope.Definition{Name: "abcdef"}, scope.Definition{Name: "abcdeg"},
		scope.Definition{Name: long})
	for _, c := range []struct{ name, want scope.Name }{
		{"abcdxx", "abcdef"},   // two letters, and the first of those that are equally near
		{"abcxxx", ""},         // three
		{"badcef", "abcdef"},   // two swaps
		{"badcfe", ""},         // three
		{"abxxcdef", "abcdef"}, // two letters too many
		{"acdf", "abcdef"},     // and two too few
		{"bacdeg", "abcdeg"},
		{"", "ab"},
		{long[:63], long},
		{long[:63] + "y", long},
		{long + "x", ""}, // nothing so long is compared
	} {
		got, ok := r.Suggest(c.name)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Suggest(%q) = %q, %v, want %q", c.name, got, ok, c.want)
		}
	}
	if got, ok := scope.New().Suggest("tasks:read"); ok {
		t.Errorf("a registry without scopes suggests %q", got)
	}
}

// A name of 65 characters could be meant for a scope of 63, but names that long
// are not compared.
func TestSuggestTooLong(t *testing.T) {
	r := scope.New(scope.Definition{Name: scope.Name(strings.Repeat("x", 63))})
	for length, want := range map[int]bool{64: true, 65: false} {
		if _, ok := r.Suggest(scope.Name(strings.Repeat("x", length))); ok != want {
			t.Errorf("Suggest of %d characters: got %t, want %t", length, ok, want)
		}
	}
}
