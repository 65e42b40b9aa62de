package scope_test

import (
	"fmt"

	"github.com/sallyport-go/sallyport/scope"
)

func ExampleRegistry_Parse() {
	// What a key was granted, as it is stored.
	held, unknown := scope.Default().Parse([]scope.Name{"tasks:read", "future:thing", "TASKS:WRITE"})

	fmt.Println("holds:", held)
	fmt.Println("unknown:", unknown)
	fmt.Println("may write tasks:", held.Has(scope.TasksWrite))
	// Output:
	// holds: tasks:read
	// unknown: [future:thing TASKS:WRITE]
	// may write tasks: false
}

func ExampleSet_HasAll() {
	required, _ := scope.Default().Parse([]scope.Name{scope.TasksRead, scope.TasksCancel})
	held, _ := scope.Default().Parse([]scope.Name{scope.TasksRead})

	fmt.Println(held.HasAll(required), held.HasAny(required))
	// Output: false true
}

// Who may write tasks may also read them.
func ExampleNew_implies() {
	registry := scope.New(
		scope.Definition{Name: "tasks:read"},
		scope.Definition{Name: "tasks:write", Implies: []scope.Name{"tasks:read"}},
	)
	held, unknown := registry.Parse([]scope.Name{"tasks:write", "tasks:all"})
	fmt.Println(held.Has("tasks:read"), unknown)
	// Output: true [tasks:all]
}

func ExampleRegistry_Suggest() {
	if meant, ok := scope.Default().Suggest("task:read"); ok {
		fmt.Println("did you mean", meant)
	}
	// Output: did you mean tasks:read
}

// A service with scopes of its own lists them beside those of [scope.Default].
func ExampleNew() {
	registry := scope.New(append(scope.Default().Definitions(),
		scope.Definition{Name: "billing:read", Meaning: "Read invoices."})...)

	held, _ := registry.Parse([]scope.Name{"billing:read"})
	fmt.Println(held, registry.Known("billing:read"), scope.Default().Known("billing:read"))
	// Output: billing:read true false
}
