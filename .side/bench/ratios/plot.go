package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A group is the bars of one row.
type group struct {
	name string
	bars []bar
}

// A bar is a ratio; low and high are the middle half of its rounds.
type bar struct {
	name, class    string // of class ours, peer or hand
	mid, low, high float64
}

func barOf(name, class string, each []float64) bar {
	return bar{name, class, median(each), quantile(each, 0.25), quantile(each, 0.75)}
}

// A line is what a call of a store takes, by how much the store holds.
type line struct {
	name   string
	points []point
}

type point struct{ x, mid, low, high float64 }

const style = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .page { fill: #ffffff } .row { font-weight: 600 }
.end { text-anchor: end } .mid { text-anchor: middle } .grid { stroke: #d0d7de }
.line { stroke: #424a53; stroke-width: 1.5 }
.number { stroke: #ffffff; stroke-width: 5; paint-order: stroke }
.ours { fill: #0969da } .peer { fill: #8c959f } .hand { fill: #c8d1da } polyline { fill: none; stroke-width: 2 }
.c0 { stroke: #0969da } .c1 { stroke: #1a7f37 } .c2 { stroke: #bc4c00 } .c3 { stroke: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .page { fill: #0d1117 } .grid { stroke: #30363d } .line { stroke: #d1d7e0 }
.number { stroke: #0d1117 }
.ours { fill: #4493f8 } .peer { fill: #6e7681 } .hand { fill: #3d444d }
.c0 { stroke: #4493f8 } .c1 { stroke: #3fb950 } .c2 { stroke: #f0883e } .c3 { stroke: #ab7df8 }
}
</style>
`

// A picture is an SVG that shows itself in the light and the dark.
type picture struct{ strings.Builder }

func (p *picture) text(class string, x, y float64, text string) {
	fmt.Fprintf(p, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, html.EscapeString(text))
}

func (p *picture) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(p, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
}

func (p *picture) sized(title string, width, height float64) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]v %[2]v" width="%[1]v" role="img">`+
		"\n<title>%[3]s</title>\n%[4]s<rect class=\"page\" width=\"%[1]v\" height=\"%[2]v\"/>\n%[5]s</svg>\n",
		width, height, html.EscapeString(title), style, p.String())
}

// barChart draws the groups below each other, beside a line at 1.
func barChart(title string, groups []group) string {
	const width, left, right, thick = 860, 400.0, 70, 18.0
	most := 1.0
	for _, g := range groups {
		for _, b := range g.bars {
			most = max(most, b.high, b.mid)
		}
	}
	var p, numbers picture
	scale, y := (width-left-right)/most, 34.0
	p.text("mid", left+scale, 20, "1")
	p.text("row", 12, 20, title)
	for _, g := range groups {
		p.text("row", 12, y+thick-5, g.name)
		for _, b := range g.bars {
			mid := y + (thick-4)/2
			p.text("end", left-8, y+thick-5, b.name)
			fmt.Fprintf(&p, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n",
				b.class, left, y, b.mid*scale, thick-4)
			p.line("line", left+b.low*scale, mid, left+b.high*scale, mid)
			for _, end := range []float64{b.low, b.high} {
				p.line("line", left+end*scale, mid-3, left+end*scale, mid+3)
			}
			numbers.text("number", left+max(b.mid, b.high)*scale+6, y+thick-5, fmt.Sprintf("%.2f", b.mid))
			y += thick
		}
		y += 12
	}
	p.line("line", left+scale, 26, left+scale, y)
	p.WriteString(numbers.String())
	return p.sized(title, width, y+10)
}

// lineChart draws the lines over powers of ten.
func lineChart(title string, lines []line) string {
	const width, height, left, right, top, bottom = 860.0, 400.0, 70.0, 250.0, 44.0, 36.0
	least, most, high := math.Inf(1), 0.0, 0.0
	for _, l := range lines {
		for _, at := range l.points {
			least, most, high = min(least, at.x), max(most, at.x), max(high, at.mid, at.high)
		}
	}
	step := 500.0
	high = math.Ceil(high/step) * step
	x := func(v float64) float64 {
		return left + (width-left-right)*math.Log(v/least)/max(math.Log(most/least), 1)
	}
	y := func(v float64) float64 { return height - bottom - (height-top-bottom)*v/max(high, step) }
	var p picture
	p.text("row", 12, 20, title)
	for v := 0.0; v <= high; v += step {
		p.line("grid", left, y(v), width-right, y(v))
		p.text("end", left-8, y(v)+4, fmt.Sprintf("%.0f ns", v))
	}
	for v := least; v <= most; v *= 10 {
		p.text("mid", x(v), height-bottom+20, power(v))
	}
	free := height // where the lowest name ends
	for i, l := range sortedByEnd(lines) {
		class := fmt.Sprintf("c%d", i%4)
		var corners []string
		for _, at := range l.points {
			corners = append(corners, fmt.Sprintf("%.1f,%.1f", x(at.x), y(at.mid)))
			p.line(class, x(at.x), y(at.low), x(at.x), y(at.high))
		}
		fmt.Fprintf(&p, `<polyline class="%s" points="%s"/>`+"\n", class, strings.Join(corners, " "))
		if len(l.points) > 0 {
			end := l.points[len(l.points)-1]
			free = min(free-18, y(end.mid)+4)
			p.text("", width-right+10, free, l.name)
			p.line(class, width-right, y(end.mid), width-right+8, free-4)
		}
	}
	return p.sized(title, width, height)
}
