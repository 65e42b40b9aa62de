package main

import (
	_ "embed"
	"fmt"
	"html"
	"math"
	"strings"
)

//go:embed style.css
var style string

// A group is the bars of a row, or the points of a line.
type group struct {
	name string
	bars []bar
}

type bar struct {
	name, class string // the class is ours, peer or hand
	sample
}

// A picture is an SVG that shows itself in the light and the dark.
type picture struct{ strings.Builder }

func (p *picture) text(class string, x, y float64, text string) {
	fmt.Fprintf(p, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, html.EscapeString(text))
}

func (p *picture) path(class, format string, a ...any) {
	fmt.Fprintf(p, `<path class="%s" d="%s"/>`+"\n", class, fmt.Sprintf(format, a...))
}

func (p *picture) sized(title string, width, height float64) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]v %[2]v" width="%[1]v" role="img">`+
		"\n<title>%[3]s</title>\n<style>\n%[4]s</style>\n<rect class=\"page\" width=\"%[1]v\" height=\"%[2]v\"/>\n"+
		`<text class="row" x="12" y="20">%[3]s</text>`+"\n%[5]s</svg>\n",
		width, height, html.EscapeString(title), style, p.String())
}

// most is how far the bars reach.
func most(groups []group) (most float64) {
	for _, g := range groups {
		for _, b := range g.bars {
			most = max(most, b.quantile(0.75))
		}
	}
	return most
}

// barChart draws the groups below each other, beside a line at 1.
func barChart(title string, groups []group) string {
	const width, left, right, thick = 860, 400.0, 70, 18.0
	var p, numbers picture
	scale, y := (width-left-right)/max(1, most(groups)), 34.0
	p.text("mid", left+scale, 20, "1")
	for _, g := range groups {
		p.text("row", 12, y+thick-5, g.name)
		for _, b := range g.bars {
			low, high := left+b.quantile(0.25)*scale, left+b.quantile(0.75)*scale
			p.text("end", left-8, y+thick-5, b.name)
			p.path(b.class, "M%v %.1fh%.1fv%vH%vz", left, y, b.median()*scale, thick-4, left)
			p.path("line", "M%.1f %.1fv6m0-3H%.1fm0-3v6", low, y+thick/2-5, high)
			numbers.text("number", high+6, y+thick-5, fmt.Sprintf("%.2f", b.median()))
			y += thick
		}
		y += 12
	}
	p.path("line", "M%.1f 26V%.1f", left+scale, y)
	p.WriteString(numbers.String())
	return p.sized(title, width, y+10)
}

// lineChart draws a line for each group over powers of ten.
func lineChart(title string, lines []group) string {
	const width, left, right, top, bottom, step = 860.0, 70.0, 610.0, 44.0, 364.0, 500.0
	high := math.Ceil(most(lines)/step) * step
	x := func(i int) float64 { return left + (right-left)*float64(i)/3 }
	y := func(ns float64) float64 { return bottom - (bottom-top)*ns/high }
	var p picture
	for ns := 0.0; ns <= high; ns += step {
		p.path("grid", "M%v %.1fH%v", left, y(ns), right)
		p.text("end", left-8, y(ns)+4, fmt.Sprintf("%.0f ns", ns))
	}
	for n, l := range lines {
		class, key, corners := fmt.Sprint("c", n), top+20*float64(n), "M"
		for i, at := range l.bars {
			p.text("mid", x(i), bottom+20, at.name)
			p.path(class, "M%.1f %.1fV%.1f", x(i), y(at.quantile(0.25)), y(at.quantile(0.75)))
			corners += fmt.Sprintf(" %.1f %.1f", x(i), y(at.median()))
		}
		p.path(class, "%sM%v %vh18", corners, right+10, key)
		p.text("", right+34, key+4, l.name)
	}
	return p.sized(title, width, bottom+36)
}
