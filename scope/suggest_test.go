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
		{long + "x", ""}, // 65 characters: nothing so long is compared
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
