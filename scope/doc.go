// Package scope holds the names of what an API key may do, and the sets that
// answer the question quickly.
//
//	registry := scope.New(
//		scope.Definition{Name: "tasks:read"},
//		scope.Definition{Name: "tasks:write", Implies: []scope.Name{"tasks:read"}},
//	)
//	held, unknown := registry.Parse([]scope.Name{"tasks:write", "tasks:all"})
//	fmt.Println(held.Has("tasks:read"), unknown) // true [tasks:all]
//
// A [Registry] is the list of all scopes a service has; [Default] returns that of
// the sixteen constants here. A [Set] is a subset of one registry.
//
// The rules:
//
//   - A name MUST match exactly. There are no wildcards, no trimming and no
//     folding of case: "tasks:*", "TASKS:READ" and "tasks:read " are unknown.
//   - An unknown name MUST NOT grant anything, and MUST NOT make the known
//     names beside it worthless.
//   - No scope implies another one unless a registry says so. "tasks:write"
//     alone does not allow reading.
//   - A Set MUST NOT be compared with a Set of another registry. Every
//     question about such a pair is answered with false.
//   - An empty requirement is a mistake, never a permission: [Set.HasAll] and
//     [Set.HasAny] of an empty set are false.
package scope
