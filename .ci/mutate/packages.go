package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pkg is what "go list -json" tells of a package.
type pkg struct {
	Dir, ImportPath           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	Imports                   []string
	TestImports, XTestImports []string
	Module                    struct{ Dir string }

	tests []*pkg          // the packages whose tests judge this one
	files map[string]bool // its files as they are printed
	seen  map[string]bool // the texts and places of all its mutants
}

func (p *pkg) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// isSuite reports whether t are the tests of q on real servers, in a folder of
// its name, or q shows figures and t reads them.
func isSuite(t, q *pkg) bool {
	name := filepath.Base(q.Dir)
	for _, suite := range append([]string{name}, shared[name]...) {
		if strings.HasSuffix(t.Dir, "/.suites/"+suite) {
			return true
		}
	}
	return strings.HasSuffix(t.Dir, "/.side/figures") &&
		slices.Contains(q.Imports, "github.com/sallyport-go/sallyport/middleware/internal/figures")
}

// shared are the suites of other names that test a store.
var shared = map[string][]string{
	"idempgx":        {"idemsql", "adapters"},
	"idemsql":        {"adapters"},
	"idemredis":      {"adapters"},
	"keysql":         {"adapters"},
	"ratelimitredis": {"adapters"},
}

// load lists the packages that match the patterns, in all modules, or else all
// that are published, and finds the tests of each.
func load(ctx context.Context, patterns []string) (chosen []*pkg, err error) {
	top, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	folders, err := modules(top)
	if err != nil {
		return nil, err
	}
	var all []*pkg
	for _, folder := range folders {
		packages, err := goList(ctx, folder)
		if err != nil {
			return nil, err
		}
		all = append(all, packages...)
	}
	for _, p := range all {
		folder := strings.TrimPrefix(strings.TrimPrefix(p.Dir, top), "/")
		if len(p.GoFiles) > 0 && matches(folder, patterns) {
			p.tests = judges(p, all)
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no package matches %q", patterns)
	}
	return chosen, nil
}

// modules returns the folders with a go.mod.
func modules(top string) (folders []string, err error) {
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if err == nil && d.Name() == "go.mod" {
			folders = append(folders, filepath.Dir(path))
		}
		return err
	})
	return folders, err
}

// matches reports whether a pattern such as ./idem or ./idem/... means the
// folder. No pattern means each that is not hidden.
func matches(folder string, patterns []string) bool {
	if len(patterns) == 0 {
		return !strings.HasPrefix(folder, ".")
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		above, below := strings.CutSuffix(strings.TrimPrefix(pattern, "./"), "...")
		above = strings.TrimSuffix(above, "/")
		return folder == above || below && (above == "" || strings.HasPrefix(folder, above+"/"))
	})
}

// judges returns the packages whose tests judge p: it, its suites, and the same
// of those that import it if it is internal, or else of those whose tests do.
// Those that take longer are the later ones.
func judges(p *pkg, all []*pkg) (tests []*pkg) {
	all = append([]*pkg{p}, all...)
	internal := strings.Contains(p.ImportPath, "/internal/")
	tests = testsOf(all, func(q *pkg) bool {
		return q == p || internal && slices.Contains(q.Imports, p.ImportPath)
	})
	if len(tests) == 0 && internal {
		tests = testsOf(all, func(q *pkg) bool {
			return slices.Contains(slices.Concat(q.TestImports, q.XTestImports), p.ImportPath)
		})
	}
	return tests
}

// testsOf returns the packages with tests among the wanted, and their suites.
func testsOf(all []*pkg, wanted func(*pkg) bool) (tests []*pkg) {
	for _, q := range all {
		if !wanted(q) {
			continue
		}
		for _, t := range all {
			if (t == q || isSuite(t, q)) && t.tested() && !slices.Contains(tests, t) {
				tests = append(tests, t)
			}
		}
	}
	return tests
}

func goList(ctx context.Context, folder string) ([]*pkg, error) {
	const fields = "Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Module"
	cmd := exec.CommandContext(ctx, "go", "list", "-json="+fields, "./...")
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []*pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := new(pkg)
		if err := d.Decode(p); err == io.EOF {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// mutants returns those of a package that are not known to be equivalent.
func (p *pkg) mutants(known equivalents) ([]mutant, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	p.files, p.seen = map[string]bool{}, map[string]bool{}
	var all []mutant
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		shown := strings.TrimPrefix(path, here+"/")
		p.files[shown] = true
		found, err := find(path, shown, src)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			p.seen[m.text()], p.seen[m.place()] = true, true
			if !known.has(m) {
				all = append(all, m)
			}
		}
	}
	return all, nil
}
