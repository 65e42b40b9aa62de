// Ratios reads what "go test -bench" printed in several rounds and prints, as
// Markdown, each peer's median and Sallyport's ratio to the best peer of each
// row.
//
//	ratios [-metric cpu-ns/op] [-quantile 0.5] [-svg FILE] < rounds.txt
//
// It also draws them into FILE.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	ours   = "sallyport"
	byHand = "hand-lru" // stands in columns of its own
)

// figures are those of one peer in one row, in the order of the rounds.
type figures map[string][]float64 // by unit

func main() {
	metric := flag.String("metric", "cpu-ns/op", "the unit that is compared")
	svg := flag.String("svg", "", "the `file` to draw the ratios into")
	flag.Float64Var(&middle, "quantile", 0.5,
		"which of each peer's figures is compared: 0.5 is the median, 0 the smallest")
	flag.Parse()

	line := regexp.MustCompile(`^Benchmark\w+/peer=([^/]+)/path=(\S+?)(-\d+)?\s+\d+\s+(.*)$`)
	table := make(map[string]map[string]figures) // row, peer
	var rows, peers []string
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		m := line.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		peer, row := m[1], m[2]
		if strings.HasPrefix(row, "take-") || strings.HasSuffix(row, "-parallel") {
			row += " " + cmp.Or(strings.TrimPrefix(m[3], "-"), "1") + " cpu"
		}
		if table[row] == nil {
			table[row] = make(map[string]figures)
			rows = append(rows, row)
		}
		if table[row][peer] == nil {
			table[row][peer] = make(figures)
		}
		if !slices.Contains(peers, peer) {
			peers = append(peers, peer)
		}
		fields := strings.Fields(m[4])
		for i := 0; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				table[row][peer][fields[i+1]] = append(table[row][peer][fields[i+1]], v)
			}
		}
	}

	what := "medians"
	if middle != 0.5 {
		what = fmt.Sprintf("quantile %v", middle)
	}
	fmt.Printf("| %s, %s (allocations) |", *metric, what)
	for _, p := range peers {
		fmt.Printf(" %s |", p)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("--:|", len(peers)))
	for _, row := range rows {
		fmt.Printf("| %s |", row)
		for _, p := range peers {
			if f := table[row][p]; f == nil {
				fmt.Print(" |")
			} else {
				fmt.Printf(" %.4g (%.0f) |", median(f[*metric]), median(f["allocs/op"]))
			}
		}
		fmt.Println()
	}

	fmt.Print("\n| row | API, of the floor | pieces, of API | recipe, of API | pieces, of the best net/http peer |" +
		" recipe, of it |\n|---|--:|--:|--:|--:|--:|\n")
	for _, row := range rows {
		at := func(peer string) float64 { return median(table[row][peer][*metric]) }
		if table[row][ours+"-pieces"] != nil {
			pieces, recipe, best := at(ours+"-pieces"), at(ours+"-recipe"), at(bestOf(table[row], peers, *metric, false))
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
	for _, row := range rows {
		mine := table[row][ours][*metric]
		fmt.Printf("| %s |", row)
		for _, best := range []string{
			bestOf(table[row], peers, *metric, false), bestOf(table[row], peers, *metric, true), byHand,
		} {
			theirs := table[row][best][*metric]
			if theirs == nil {
				fmt.Print(" | | |")
				continue
			}
			var each []float64
			for i := range min(len(mine), len(theirs)) {
				each = append(each, mine[i]/theirs[i])
			}
			fmt.Printf(" %s | %.2f | %.2f–%.2f |", best, median(mine)/median(theirs), quantile(each, 0.25), quantile(each, 0.75))
		}
		fmt.Println()
	}
	if *svg != "" {
		if err := plot(*svg, *metric, table, rows, peers); err != nil {
			fmt.Fprintln(os.Stderr, "ratios:", err)
			os.Exit(1)
		}
	}
}

// bestOf names the cheapest of the compositions in a row.
func bestOf(row map[string]figures, peers []string, metric string, withFiber bool) (best string) {
	for _, p := range peers {
		f := row[p]
		if f == nil || strings.HasPrefix(p, ours) || strings.HasPrefix(p, "bare") || p == "floor" ||
			p == byHand || p == "fiber" && !withFiber {
			continue
		}
		if best == "" || median(f[metric]) < median(row[best][metric]) {
			best = p
		}
	}
	return best
}

// middle is 0.5 unless the command line says otherwise.
var middle float64

func median(v []float64) float64 { return quantile(v, middle) }

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}
