package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// printed is what a run of page prints: in three rounds we take 0.9, 1 and 1.2
// of what the best peer takes, and answer 80, 90 and 95 requests where the bare
// server answers 100.
func printed() string {
	var s strings.Builder
	fmt.Fprintln(&s, "2026-11-26, commit 891c677, go1.26.8 linux/amd64, 2 processors of AMD EPYC, 3 rounds of 150ms")
	for _, row := range requestRows {
		for _, round := range []float64{900, 1000, 1200} {
			for peer, ns := range map[string]float64{
				"sallyport": round, "sallyport-pieces": 1.1 * round, "echo": 1000, "gin+ulule": 1100, "hand-lru": 800,
				"fiber": 500,
			} {
				fmt.Fprintf(&s, "BenchmarkPath/peer=%s/path=%s-2 \t 10000\t 1 ns/op\t %.0f cpu-ns/op\n", peer, row.path, ns)
			}
		}
	}
	for _, row := range stores {
		for entries, ns := 1000, 90.0; entries <= 1_000_000; entries, ns = entries*10, ns*2.5 {
			fmt.Fprintf(&s, "BenchmarkGrowth/store=%s/entries=%d-2 \t 10\t 1 ns/op\t 303.4 bytes/entry\t %.1f cpu-ns/op\n",
				row[0], entries, ns)
		}
	}
	for _, path := range []string{"get", "post-fresh", "post-replay"} {
		for i := range 18 {
			ns, peer := []int{1000, 1100, 1200}[i%3], []string{"sallyport", "hand-lru", "bare"}[i/3%3]
			for _, n := range []string{"", "-2", "-4"} {
				fmt.Fprintf(&s, "BenchmarkProcessors/peer=%s/path=%s/organizations=%d%s \t 10\t %d ns/op\n",
					peer, path, []int{1, 1000}[i/9], n, ns)
				ns /= 2
			}
		}
	}
	for _, row := range serverRows {
		for _, ratio := range []float64{0.80, 0.90, 0.95} {
			fmt.Fprintf(&s, "BenchmarkLoopback/peer=%s/method=%s/connections=%s 1 %.2f ratio\n", row.peer, row.method,
				row.connections, ratio)
		}
	}
	return s.String()
}

// A folder with the page as it is.
func folder(t *testing.T) (dir, page string) {
	t.Helper()
	now, err := os.ReadFile("../../../.github/BENCHMARKS.md")
	dir = t.TempDir()
	page = filepath.Join(dir, "BENCHMARKS.md")
	if err := errors.Join(err, os.WriteFile(page, now, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir, page
}

func TestWritePage(t *testing.T) {
	dir, page := folder(t)
	for range 2 { // the second time over what the first has written
		if err := writePage(dir, read(strings.NewReader(printed()))); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nMeasured 2026-11-26, commit 891c677, go1.26.8 linux/amd64, 2 processors of AMD EPYC, 3 rounds of 150ms.\n",
		"\n| GET, one key | echo | 1.00 (0.95–1.10) | 1.25 (1.19–1.38) | 0.40 ✗ |\n",
		"\n| GET, 10,000 keys | echo | 1.00 (0.95–1.10) | 1.25 (1.19–1.38) | 1.00 |\n",
		"\n| GET, stores in memory | sallyport | 0.90 (0.85–0.93) | 0.88 |\n",
		"\n| create, Postgres, 64 connections | joined, idempgx | 0.90 (0.85–0.93) | 0.68 |\n",
		"\n**So**: with all in memory a server answers 10 % fewer GETs a second than a bare one,\nand 10 % fewer c",
		"\na create or its repeat 1.00 to 1.00; of that of code by hand all take 1.25 to 1.25. As pieces a GET takes\n1.10",
		"\n| nanoseconds a call | 10³ | 10⁴ | 10⁵ | 10⁶ | bytes each |\n",
		"\n| `keystore.Cached`, known key | 90 | 225 | 562 | 1406 | 303 to 303 |\n",
		"\n| create | 2 |" + strings.Repeat(" 2.00 (2.00–2.00) |", 6) + "\n| repeat |",
	} {
		if strings.Count(string(text), want) != 1 {
			t.Errorf("the page has not once %q", want)
		}
	}
	if t.Failed() {
		t.Logf("the page:\n%s", text)
	}
	for _, name := range []string{"requests", "servers", "growth"} {
		svg, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		decoder := xml.NewDecoder(strings.NewReader(string(svg)))
		for err == nil {
			_, err = decoder.Token()
		}
		if err != io.EOF || strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
			t.Errorf("%s.svg is no picture: %v", name, err)
		}
		if !strings.Contains(string(text), "("+name+".svg)") {
			t.Errorf("the page does not show %s.svg", name)
		}
	}
}

// A run that was cut short changes nothing, and says what it lacks.
func TestWritePageOfHalfARun(t *testing.T) {
	dir, page := folder(t)
	before, _ := os.ReadFile(page)
	half, _, _ := strings.Cut(printed(), "BenchmarkLoopback/peer=postgres-joined/method=POST/connections=64")
	err := writePage(dir, read(strings.NewReader(half)))
	const want = "the run has not Loopback/peer=postgres-joined/method=POST/connections=64 ratio"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	after, _ := os.ReadFile(page)
	if files, _ := os.ReadDir(dir); string(after) != string(before) || len(files) != 1 {
		t.Errorf("the page has changed, or a picture is there: %v", files)
	}
}
