// Ratios reads what the benchmarks of several rounds printed and prints, as
// Markdown, each peer's median and Sallyport's ratio to the best peer of each
// row.
//
//	ratios [-metric cpu-ns/op] [-svg FILE] < rounds.txt
//	ratios -page FOLDER < page.txt
//
// With -svg it also draws the ratios into FILE. With -page it writes the tables
// of BENCHMARKS.md in FOLDER, and the pictures beside it.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

const (
	ours   = "sallyport"
	byHand = "hand-lru" // stands in columns of its own
)

func main() {
	metric := flag.String("metric", "cpu-ns/op", "the unit that is compared")
	svg := flag.String("svg", "", "the `file` to draw the ratios into")
	folder := flag.String("page", "", "the `folder` of the page to write the tables into")
	flag.Parse()

	r, err := read(os.Stdin), error(nil)
	if *folder != "" {
		err = writePage(*folder, r)
	} else {
		print(r.paths, *metric)
		if *svg != "" {
			err = os.WriteFile(*svg, []byte(barChart(requestTitle, requestGroups(r.paths, *metric))), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

func print(t table, metric string) {
	fmt.Printf("| %s, medians (allocations) |", metric)
	for _, p := range t.peers {
		fmt.Printf(" %s |", p)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("--:|", len(t.peers)))
	for _, row := range t.rows {
		fmt.Printf("| %s |", row)
		for _, p := range t.peers {
			if f := t.at[row][p]; f == nil {
				fmt.Print(" |")
			} else {
				fmt.Printf(" %.4g (%.0f) |", median(f[metric]), median(f["allocs/op"]))
			}
		}
		fmt.Println()
	}

	fmt.Print("\n| row | API, of the floor | pieces, of API | recipe, of API | pieces, of the best net/http peer |" +
		" recipe, of it |\n|---|--:|--:|--:|--:|--:|\n")
	for _, row := range t.rows {
		at := func(peer string) float64 { return median(t.at[row][peer][metric]) }
		if t.at[row][ours+"-pieces"] != nil {
			pieces, recipe, best := at(ours+"-pieces"), at(ours+"-recipe"), at(t.best(row, metric, false))
			floor := ""
			if f := at("floor"); f > 0 {
				floor = fmt.Sprintf("%.2f", at(ours)/f)
			}
			fmt.Printf("| %s | %s | %.2f | %.2f | %.2f | %.2f |\n", row, floor, pieces/at(ours), recipe/at(ours),
				pieces/best, recipe/best)
		}
	}

	fmt.Print("\n| row | best composition on net/http | ratio | middle half | best with fiber | ratio | middle half " +
		"| by hand | ratio | middle half |\n|---|---|--:|---|---|--:|---|---|--:|---|\n")
	for _, row := range t.rows {
		fmt.Printf("| %s |", row)
		for _, best := range []string{t.best(row, metric, false), t.best(row, metric, true), byHand} {
			if each := ratios(t.at[row][ours][metric], t.at[row][best][metric]); each == nil {
				fmt.Print(" | | |")
			} else {
				fmt.Printf(" %s | %.2f | %.2f–%.2f |", best,
					median(t.at[row][ours][metric])/median(t.at[row][best][metric]), quantile(each, 0.25), quantile(each, 0.75))
			}
		}
		fmt.Println()
	}
}

// best names the cheapest of the compositions in a row.
func (t table) best(row, metric string, withFiber bool) (best string) {
	for _, p := range t.peers {
		f := t.at[row][p]
		if f == nil || strings.HasPrefix(p, ours) || strings.HasPrefix(p, "bare") || p == "floor" ||
			p == byHand || p == "fiber" && !withFiber {
			continue
		}
		if best == "" || median(f[metric]) < median(t.at[row][best][metric]) {
			best = p
		}
	}
	return best
}
