// Draw draws rows of the dashboard as an SVG, for light and dark pages, with
// what a Prometheus has of a job between two times:
//
//	go run ./metrics/draw http://127.0.0.1:9090 api $(date -d '20 min ago' +%s) $(date +%s) > FILE
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"log"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/middleware/middlewareprom"
)

// A panel is what is drawn of one of the dashboard.
type panel struct {
	Type, Title string
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct{ Defaults defaults }
}

type defaults struct {
	Unit       string
	Thresholds struct{ Steps []map[string]any }
}

// A curve is what a query has found of one series.
type curve struct {
	Metric    map[string]string
	Values    [][2]any // seconds since 1970, and the value as text
	legend    string
	points    [][2]float64 // a time, from 0 to 1, and the value
	top, last float64      // values
}

const style = `<style>
text { font: 12px system-ui, sans-serif; fill: #24292f } .row { font-size: 16px } .timeseries { font-weight: 600 }
.stat { font-size: 11px } .value { font-size: 26px } .dim { fill: #57606a } .grid { stroke: #8886; fill: none }
.bound { stroke-dasharray: 4 3 } polyline { fill: none; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .dim { fill: #9198a1 } }
</style>`

func main() {
	var dashboard struct{ Panels []panel }
	check(json.Unmarshal(middlewareprom.Dashboard, &dashboard))
	var begin, end int64
	fmt.Sscan(os.Args[3]+" "+os.Args[4], &begin, &end)
	var svg strings.Builder
	bottom, shift, drawn := 0, 0, false
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			shift, drawn = bottom-p.GridPos.Y, strings.Contains("Now, What users feel, Stores", p.Title)
		}
		if drawn {
			p.GridPos.Y += shift
			bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
			p.draw(&svg, begin, end)
		}
	}
	fmt.Printf("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 1200 %d'>\n%s\n%s</svg>\n", bottom*26, style, &svg)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// measured asks Prometheus what Grafana would ask.
func measured(query, legend string, begin, end int64) []curve {
	query = strings.NewReplacer("$job", os.Args[2], "$instance", ".*", "$__rate_interval", "1m").Replace(query)
	resp, err := http.Get(fmt.Sprintf("%s/api/v1/query_range?query=%s&start=%d&end=%d&step=%g",
		os.Args[1], url.QueryEscape(query), begin, end, float64(end-begin)/80))
	check(err)
	var answer struct{ Data struct{ Result []curve } }
	check(json.NewDecoder(resp.Body).Decode(&answer))
	all := answer.Data.Result
	for i, c := range all {
		all[i].legend = os.Expand(strings.NewReplacer("{{", "${", "}}", "}").Replace(legend),
			func(label string) string { return c.Metric[label] })
		for _, v := range c.Values {
			if y, _ := strconv.ParseFloat(v[1].(string), 64); 0 <= y && y < 1e18 { // not NaN
				all[i].top, all[i].last = max(all[i].top, y), y
				all[i].points = append(all[i].points, [2]float64{(v[0].(float64) - float64(begin)) / float64(end-begin), y})
			}
		}
	}
	return all
}

func (p panel) draw(svg *strings.Builder, begin, end int64) {
	x, y, w, h := p.GridPos.X*50, p.GridPos.Y*26, p.GridPos.W*50, p.GridPos.H*26
	text := func(x, y int, class, f string, a ...any) {
		fmt.Fprintf(svg, "<text x='%d' y='%d' class='%s'>%s</text>\n", x, y, class, html.EscapeString(fmt.Sprintf(f, a...)))
	}
	if text(x+10, y+20, p.Type, "%s", p.Title); p.Type == "row" {
		return
	}
	fmt.Fprintf(svg, "<rect class='grid' x='%d' y='%d' width='%d' height='%d' rx='3'/>\n", x+3, y+3, w-6, h-6)
	curves := []curve{{top: 1e-9}} // for one that measured nothing
	for _, t := range p.Targets {
		curves = append(curves, measured(t.Expr, t.LegendFormat, begin, end)...)
	}
	slices.SortStableFunc(curves, func(a, b curve) int { return cmp.Compare(b.top, a.top) })
	top := curves[0].top
	unit := map[string]string{"reqps": "/s", "s": " s", "percentunit": " %"}[p.FieldConfig.Defaults.Unit]
	factor := map[string]float64{" %": 100, " s": 1, "/s": 1, "": 1}[unit]
	left, right, above, below := x+62, x+w-14, y+34, y+h-46
	height := func(v float64) int { return below - int(v/top*float64(below-above)) }
	if p.Type == "stat" {
		left, above, below = x+12, y+66, y+h-12
		text(left, y+54, "value", "%.3g%s", curves[0].last*factor, unit)
	} else {
		for _, v := range []float64{0, top / 2, top} {
			fmt.Fprintf(svg, "<path class='grid' d='M%d %dH%d'/>\n", left, height(v), right)
			text(x+10, height(v)+4, "dim", "%.3g%s", v*factor, unit)
		}
		for _, t := range p.FieldConfig.Defaults.Thresholds.Steps {
			if v, _ := t["value"].(float64); 0 < v && v < top {
				fmt.Fprintf(svg, "<path class='bound' stroke='%s' d='M%d %dH%d'/>\n", t["color"], left, height(v), right)
			}
		}
		text(left, below+15, "dim", "%s", time.Unix(begin, 0).UTC().Format("15:04"))
		text(right-30, below+15, "dim", "%s", time.Unix(end, 0).UTC().Format("15:04"))
	}
	at := x + 12
	for i, c := range curves {
		color := []string{"#2f81f7", "#d9730d", "#2e8b3d", "#a371f7", "#d1242f", "#b08800", "#0a9396", "#848d97"}[i%8]
		fmt.Fprintf(svg, "<polyline stroke='%s' points='", color)
		for _, v := range c.points {
			fmt.Fprintf(svg, "%d,%d ", left+int(v[0]*float64(right-left)), height(v[1]))
		}
		svg.WriteString("'/>\n")
		if next := at + 22 + 7*len(c.legend); c.legend != "" && next < right {
			fmt.Fprintf(svg, "<path stroke='%s' stroke-width='4' d='M%d %dh10'/>\n", color, at, y+h-18)
			text(at+14, y+h-14, "dim", "%s", c.legend)
			at = next
		}
	}
}
