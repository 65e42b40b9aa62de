package middleware_test

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/codes"
)

// The stages as a request meets them, and the files that refuse in each.
var pictured = []struct{ name, files string }{
	{"RequestID", "requestid.go listener.go"},
	{"Recover", "recover.go"},
	{"Authenticate", "auth.go apikey.go throttle.go"},
	{"routing", "path.go"},
	{"RateLimit", "ratelimit.go"},
	{"Enforce", "scope.go"},
	{"Quota", "quota.go"},
	{"Idempotent", "idempotency.go keyedcall.go"},
}

// TestPicture: the picture of a request's path is what the code gives, and has
// each code of the table.
func TestPicture(t *testing.T) {
	got, seen := picture(t)
	for code := range codes.Table {
		if !seen[code] {
			t.Errorf("no stage of the picture refuses with %s", code)
		}
	}
	golden(t, "../.github/path.svg", got)
}

const pictureStyle = `
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .page { fill: #ffffff }
.box { fill: #f0f4f8; stroke: #57606a } .line { stroke: #57606a; stroke-width: 1.5; fill: none }
.name { font-weight: 600 } .end { text-anchor: middle } .file { font-size: 12px; fill: #57606a }
.code { font: 13px ui-monospace, monospace } .s4, .s5 { font-weight: 600 } .s4 { fill: #7d4e00 } .s5 { fill: #b3261e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .page { fill: #0d1117 } .box { fill: #1c2430; stroke: #9198a1 }
.file { fill: #9198a1 } .line { stroke: #9198a1 } .s4 { fill: #e3b341 } .s5 { fill: #ff8f85 }
}
`

// picture draws the stages from top to bottom, with what each refuses with at
// its right.
func picture(t *testing.T) (svg string, seen map[string]bool) {
	var b bytes.Buffer
	y, seen := 32, make(map[string]bool)
	arrow := func() {
		fmt.Fprintf(&b, "<path class=\"line\" d=\"M150 %d v14 m-4 -6 l4 6 l4 -6\"/>\n", y)
		y += 16
	}
	text := func(class string, x, y int, s string) string {
		return fmt.Sprintf(`<text class="%s" x="%d" y="%d">%s</text>`, class, x, y, s)
	}
	fmt.Fprintln(&b, text("name end", 150, 24, "request"))
	arrow()
	for _, stage := range pictured {
		refusals := refusalsOf(t, strings.Fields(stage.files))
		rows := (len(refusals) + 1) / 2
		height := max(46, rows*18+10)
		fmt.Fprintf(&b, "<rect class=\"box\" x=\"20\" y=\"%d\" width=\"260\" height=\"%d\" rx=\"6\"/>\n", y, height)
		fmt.Fprintln(&b, text("name", 36, y+height/2-4, stage.name))
		fmt.Fprintln(&b, text("file", 36, y+height/2+14, strings.ReplaceAll(stage.files, " ", ", ")))
		fmt.Fprintf(&b, "<path class=\"line\" d=\"M280 %d h28 m-6 -4 l6 4 l-6 4\"/>\n", y+height/2)
		for i, code := range refusals {
			seen[code] = true
			x, line, status := 320+i/rows*320, y+height/2-rows*9+i%rows*18+14, codes.Table[code].Status
			fmt.Fprintln(&b, text(fmt.Sprintf("code s%d", status/100), x, line, strconv.Itoa(status)),
				text("code", x+34, line, code))
		}
		y += height
		arrow()
	}
	fmt.Fprintln(&b, text("name end", 150, y+16, "handler"))
	head := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 %d\" width=\"960\" role=\"img\">\n"+
		"<title>The path of a request, and the refusals of each stage</title>\n<style>%s</style>\n"+
		"<rect class=\"page\" width=\"960\" height=\"%[1]d\"/>\n", y+28, pictureStyle)
	return head + b.String() + "</svg>\n", seen
}

// refusalsOf returns the codes that files of this package refuse with, by
// status.
func refusalsOf(t *testing.T, files []string) []string {
	parse := func(file string) *ast.File {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	names, refused := make(map[string]string), make(map[string]bool)
	ast.Inspect(parse("internal/codes/codes.go"), func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && spec.Type == nil { // an Advice has a type
			if text, ok := spec.Values[0].(*ast.BasicLit); ok {
				names[spec.Names[0].Name], _ = strconv.Unquote(text.Value)
			}
		}
		return true
	})
	for _, file := range files {
		ast.Inspect(parse(file), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr: // what would have been refused is noted only
				called, ok := n.Fun.(*ast.SelectorExpr)
				return !ok || called.Sel.Name != "noteReported"
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "codes" && names[n.Sel.Name] != "" {
					refused[names[n.Sel.Name]] = true
				}
			}
			return true
		})
	}
	return slices.SortedFunc(maps.Keys(refused), func(a, b string) int {
		return cmp.Or(codes.Table[a].Status-codes.Table[b].Status, strings.Compare(a, b))
	})
}
