package scope_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/scope"
)

func TestSuggest(t *testing.T) {
	long := scope.Name(strings.Repeat("x", 64))
	short := scope.New(scope.Definition{Name: "ab"}, scope.Definition{Name: "abcdef"}, scope.Definition{Name: "abcdeg"},
		scope.Definition{Name: long})
	for _, c := range []struct {
		registry   *scope.Registry
		name, want scope.Name
	}{
		{scope.Default(), "task:read", scope.TasksRead},
		{scope.Default(), "tasks:raed", scope.TasksRead},
		{scope.Default(), "tasks.write", scope.TasksWrite},
		{scope.Default(), "TASKS:READ", scope.TasksRead},
		{scope.Default(), " tasks:read\n", scope.TasksRead},
		{scope.Default(), "worker:write", scope.WorkersWrite},
		{scope.Default(), "tasks:cancell", scope.TasksCancel},
		{scope.Default(), "webhook:write", scope.WebhooksWrite},
		{scope.Default(), "chat:reda", scope.ChatRead},
		{scope.Default(), "tasks:read", scope.TasksRead},
		{scope.Default(), "tasks:*", ""},
		{scope.Default(), "future:thing", ""},
		{scope.Default(), "*", ""},
		{scope.Default(), "", ""},
		{scope.New(), "tasks:read", ""},

		{short, "abcdxx", "abcdef"},   // two letters, and the first of those that are equally near
		{short, "abcxxx", ""},         // three
		{short, "badcef", "abcdef"},   // two swaps
		{short, "badcfe", ""},         // three
		{short, "abxxcdef", "abcdef"}, // two letters too many
		{short, "acdf", "abcdef"},     // and two too few
		{short, "bacdeg", "abcdeg"},
		{short, "", "ab"},
		{short, long[:63], long},
		{short, long[:63] + "y", long},
		{short, long + "x", ""}, // 65 characters: nothing so long is compared
	} {
		if got, ok := c.registry.Suggest(c.name); got != c.want || ok != (c.want != "") {
			t.Errorf("Suggest(%q) = %q, %v, want %q", c.name, got, ok, c.want)
		}
	}
}
