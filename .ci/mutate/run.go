package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

type fate string

const (
	killed   fate = "killed  "
	timedOut fate = "timeout "
	survived fate = "survived"
	unbuilt  fate = "unbuilt "
)

// runner builds and runs tests.
type runner struct {
	work   string                   // a folder for what is built
	limits map[string]time.Duration // how long the tests of a package may take
}

// baseline runs tests on the code as it is. They must pass.
func (r *runner) baseline(ctx context.Context, tests []*pkg) error {
	for _, p := range tests {
		if r.limits[p.ImportPath] != 0 {
			continue
		}
		binary := filepath.Join(r.work, "unchanged.test")
		if out, err := build(ctx, p, binary); err != nil {
			return fmt.Errorf("%s without a mutant: %w\n%s", p.ImportPath, err, out)
		}
		const long = 30 * time.Minute
		started := time.Now()
		if out, _, err := run(ctx, p, binary, long); err != nil {
			return fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", p.ImportPath, err, out)
		}
		r.limits[p.ImportPath] = 20*time.Second + 3*time.Since(started)
	}
	return nil
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// try tells what the tests say of a mutant, and which of them said so first.
func (r *runner) try(ctx context.Context, tests []*pkg, m mutant) (f fate, by string, err error) {
	dir, err := os.MkdirTemp(r.work, "")
	if err != nil || ctx.Err() != nil {
		return "", "", cmp.Or(err, context.Cause(ctx))
	}
	defer os.RemoveAll(dir)
	overlay, err := m.write(dir)
	if err != nil {
		return "", "", err
	}
	binary := filepath.Join(dir, "mutant.test")
	for _, p := range tests {
		out, err := build(ctx, p, binary, "-overlay="+overlay)
		switch {
		case ctx.Err() != nil:
			return "", "", context.Cause(ctx)
		case err != nil && bytes.HasPrefix(out, []byte("# ")): // the compiler's words
			return unbuilt, "", nil
		case err != nil:
			return "", "", fmt.Errorf("%s: %w\n%s", m, err, out)
		}
		out, late, err := run(ctx, p, binary, r.limits[p.ImportPath])
		switch {
		case ctx.Err() != nil:
			return "", "", context.Cause(ctx)
		case late:
			return timedOut, "", nil
		case err != nil:
			if name := failedTest.FindSubmatch(out); name != nil {
				by = " (" + string(name[1]) + ")"
			}
			return killed, by, nil
		}
	}
	return survived, "", nil
}

// write lays the mutant over its file and returns the overlay's name.
func (m mutant) write(dir string) (string, error) {
	src, err := os.ReadFile(m.path)
	if err != nil {
		return "", err
	}
	changed := append(append(append([]byte{}, src[:m.start]...), m.new...), src[m.end:]...)
	file := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(file, changed, 0o644); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{m.path: file}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, overlay, 0o644)
}

func build(ctx context.Context, p *pkg, binary string, flags ...string) ([]byte, error) {
	args := append([]string{"test", "-c", "-vet=off", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, p.ImportPath)...)
	cmd.Dir = p.Module.Dir
	return cmd.CombinedOutput()
}

// run runs tests where "go test" would, and reports whether they took longer
// than the limit. The program ends itself at the limit, unless a mutant keeps
// it from that.
func run(ctx context.Context, p *pkg, binary string, limit time.Duration) (out []byte, late bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.failfast", "-test.timeout="+limit.String(),
		"-test.run="+*named)
	cmd.Dir = p.Dir
	cmd.WaitDelay = 5 * time.Second // for processes that the tests started
	out, err = cmd.CombinedOutput()
	late = err != nil && (errors.Is(ctx.Err(), context.DeadlineExceeded) ||
		bytes.Contains(out, []byte("panic: test timed out")))
	return out, late, err
}
