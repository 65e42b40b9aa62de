package main

import (
	"fmt"
	"os"
	"strings"
)

// A bar is what one peer takes for a row, of what the best composition on
// net/http takes; low and high are the middle half of the rounds.
type bar struct {
	peer, class    string
	mid, low, high float64
}

// bars returns those of a row: ours, the best peer's and the one by hand.
func bars(row map[string]figures, peers []string, metric string) (all []bar) {
	best := bestOf(row, peers, metric, false)
	base := median(row[best][metric])
	if base == 0 {
		return nil
	}
	for _, p := range []struct{ name, class string }{{ours, "ours"}, {best, "peer"}, {byHand, "hand"}} {
		if v := row[p.name][metric]; v != nil {
			all = append(all, bar{p.name, p.class, median(v) / base, quantile(v, 0.25) / base, quantile(v, 0.75) / base})
		}
	}
	return all
}

const plotStyle = `<style>
text { font: 12px system-ui, sans-serif; fill: #24292f } .row { font-weight: 600 }
.ours { fill: #0969da } .peer { fill: #8c959f } .hand { fill: #d0d7de } .line { stroke: #57606a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .ours { fill: #4493f8 } .peer { fill: #6e7681 } .hand { fill: #30363d }
.line { stroke: #9198a1 } }
</style>`

// plot draws the bars of each row beside each other into an SVG file.
func plot(file, metric string, table map[string]map[string]figures, rows, peers []string) error {
	const left, scale, thick = 330, 220, 16
	var s strings.Builder
	y := 30
	line := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(&s, `<line class="line" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x1, y1, x2, y2)
	}
	for _, row := range rows {
		all := bars(table[row], peers, metric)
		if len(all) == 0 || strings.HasPrefix(row, "take-") { // a part of a request
			continue
		}
		fmt.Fprintf(&s, `<text class="row" x="8" y="%d">%s</text>`+"\n", y+thick-3, row)
		for _, b := range all {
			fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+thick-4, b.peer)
			fmt.Fprintf(&s, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n",
				b.class, left, y, b.mid*scale, thick-3)
			mid := float64(y) + float64(thick-3)/2
			line(left+b.low*scale, mid, left+b.high*scale, mid)
			fmt.Fprintf(&s, `<text x="%.1f" y="%d">%.2f</text>`+"\n", left+max(b.mid, b.high)*scale+6, y+thick-4, b.mid)
			y += thick
		}
		y += 10
	}
	line(left+scale, 22, left+scale, float64(y))
	what := metric
	if metric == "cpu-ns/op" {
		what = "Processor time"
	}
	text := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 %d">`+"\n%s\n"+
		`<text x="%d" y="16">%s, of the best composition on net/http (1)</text>`+"\n%s</svg>\n",
		y+8, plotStyle, left, what, s.String())
	return os.WriteFile(file, []byte(text), 0o644)
}
