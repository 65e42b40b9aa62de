package rules_test

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// heldText says which defects break each rule, and with which words.
//
//go:embed testdata/held.txt
var heldText string

// accusation is what a rule says of a defect.
type accusation struct{ rule, defect, begins string }

// held reads the list.
func held() (all []accusation) {
	rule := ""
	for line := range strings.Lines(heldText) {
		switch text := strings.TrimSpace(line); {
		case text == "" || text[0] == '#':
		case line[0] != ' ':
			rule = text
		default:
			defect, begins, _ := strings.Cut(text, " ")
			all = append(all, accusation{rule, defect, strings.TrimSpace(begins)})
		}
	}
	return all
}

// says compares what a rule says with the list, where "…" stands for what
// differs.
func says(detail, begins string) bool {
	for i, part := range strings.Split(begins, "…") {
		at := strings.Index(detail, part)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		detail = detail[at+len(part):]
	}
	return true
}

// accusers are the methods that end a check because the server breaks a rule,
// with the argument that says so.
var accusers = map[string]int{
	"fault": 1, "report": 1, "want": 0, "wantOK": 0, "wantSame": 0, "wantID": 0, "wantOther": 0, "wantOwn": 0, "most": 1,
	"exactly": 1, "made": 0, "refuses": 1, "wantHeeded": 0, "wantApart": 0, "refusesAtOnce": 0,
	"wantOne": 0,
}

// elsewhere are sentences about servers whose responses say nothing, which
// TestRule has.
var elsewhere = []string{"was answered with a success, and GET"}

var verb = regexp.MustCompile(`%[.0-9]*[a-z]`)

// TestHeld wants each rule to be broken by a defect, and each sentence that a
// check can end with to be said of one.
func TestHeld(t *testing.T) {
	var texts, names []string
	for _, a := range held() {
		texts, names = append(texts, a.begins), append(names, a.rule)
	}
	for _, r := range rules.All() {
		if r.Level != rules.Wire && r.Level != rules.Profile && !slices.Contains(names, r.Name) {
			t.Errorf("no defect breaks %s", r.Name)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	sentences := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "wire.go" || name == "profiles.go" {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for n := range ast.Preorder(file) {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				continue
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			i, ok := accusers[method.Sel.Name]
			if !ok || i >= len(call.Args) {
				continue
			}
			sentence := longest(call.Args[i])
			if sentence == "" || slices.Contains(elsewhere, sentence) {
				continue
			}
			sentences++
			if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, sentence) }) {
				t.Errorf("%v: no defect makes a rule say %q", fset.Position(call.Pos()), sentence)
			}
		}
	}
	if sentences < 100 {
		t.Errorf("found %d sentences", sentences)
	}
}

// longest returns the longest constant part of a text that is built, "" when
// it has none.
func longest(e ast.Expr) (found string) {
	for n := range ast.Preorder(e) {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value)
			for _, part := range verb.Split(text, -1) {
				if part = strings.TrimSpace(part); len(part) > len(found) {
					found = part
				}
			}
		}
	}
	return found
}
