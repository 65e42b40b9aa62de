package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is what "go list -json" tells of a package.
type pkg struct {
	Dir, ImportPath           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string

	tests []*pkg          // the packages whose tests judge this one
	files map[string]bool // its files as they are printed
	seen  map[string]bool // the texts of all its mutants
}

func (p *pkg) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// load lists packages and finds the tests of each.
func load(ctx context.Context, patterns []string) ([]*pkg, error) {
	packages, err := goList(ctx, patterns...)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		if p.tested() {
			p.tests = append(p.tests, p)
		}
		path, _, internal := strings.Cut(p.ImportPath, "/internal/")
		if !internal {
			continue
		}
		above, err := goList(ctx, path)
		if err != nil {
			return nil, err
		}
		p.tests = append(p.tests, above...)
	}
	return packages, nil
}

func goList(ctx context.Context, patterns ...string) ([]*pkg, error) {
	args := append([]string{"list", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles", "--"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
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
func (p *pkg) mutants(known equivalentSet) ([]mutant, error) {
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
			p.seen[m.text()] = true
			if !known[m.text()] {
				all = append(all, m)
			}
		}
	}
	return all, nil
}
