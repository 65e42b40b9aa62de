package main

import (
	"path/filepath"
	"slices"
	"testing"
)

// A package that no test judges ends the run.
func TestLoad(t *testing.T) {
	t.Chdir("../..")
	packages, err := load(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		if len(p.tests) == 0 {
			t.Errorf("%s has no test that judges it", p.ImportPath)
		}
		if filepath.Base(p.Dir) == "idempgx" {
			var folders []string
			for _, test := range p.tests {
				folders = append(folders, filepath.Base(test.Dir))
			}
			if want := []string{"idempgx", "adapters", "idemsql"}; !slices.Equal(folders, want) {
				t.Errorf("idempgx is judged by %q, want %q", folders, want)
			}
		}
	}
	for pattern, want := range map[string]int{"./scope": 1, "./scop": 0, "scope/...": 1, "./.ci/...": 0} {
		packages, err := load(t.Context(), []string{pattern})
		if len(packages) != want || (err == nil) != (want > 0) {
			t.Errorf("%s: got %d packages, %v, want %d", pattern, len(packages), err, want)
		}
	}
}
