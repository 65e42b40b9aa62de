package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

var quoting = regexp.MustCompile("`([^`]+)`")

// logCalls are the calls whose first text is a line of the log: methods of
// slog.Logger, and what leads to one in package middleware.
var logCalls = []string{
	"Error", "Warn", "Info", "Log", "ErrorContext", "WarnContext", "InfoContext", "LogAttrs",
	"failed", "Failed", "fault", "sampled", "hint",
}

// TestTheGuideHasEveryLineOfTheLog: the operator's guide has each text that the
// library logs once, and no other. An ellipsis stands for the rest of a text.
func TestTheGuideHasEveryLineOfTheLog(t *testing.T) {
	guide := read(t, "../.github/OPERATING.md")
	_, table, _ := strings.Cut(guide, "\n## Lines of the log\n")
	found := make(map[string][]string) // texts of the library by what the guide has
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for _, quoted := range quoting.FindAllStringSubmatch(cells[1], -1) {
				found[quoted[1]] = nil
			}
		}
	}
	for text, where := range logTexts(t) {
		rows := 0
		for row, texts := range found {
			if stands(row, text) {
				found[row] = append(texts, text)
				rows++
			}
		}
		if rows != 1 {
			t.Errorf("%s logs %q, which has %d rows in the guide, want one", where, text, rows)
		}
	}
	for row, texts := range found {
		if texts == nil {
			t.Errorf("the guide has a row for %q, which nothing logs", row)
		}
	}
}

// stands reports whether the guide has a text, or its beginning and an ellipsis.
func stands(guide, text string) bool {
	start, open := strings.CutSuffix(guide, "…")
	return text == guide || open && strings.HasPrefix(text, start)
}

// attributes are the names of all attributes of the log: one for one thing. key
// is the id of an API key, idempotency_key the hash of another one.
var attributes = strings.Fields(`
	aborted after agent budget budget_needed burst bytes caller client code connection deprecated duration environment
	error idempotency_key kept key max_staleness method organization outcome page panic path pattern policy problem reason
	refused_key remaining reported request_id retention scope stack stage status subject units unlogged uses waited`)

// TestAttributesOfTheLog: the library names an attribute of the log by a text,
// which is in the list.
func TestAttributesOfTheLog(t *testing.T) {
	used := make(map[string]bool)
	calls(t, func(files *token.FileSet, call *ast.CallExpr, of, name string) {
		at, step := 0, 2 // of the first name, and to the next one
		switch {
		case of == "slog" && !slices.Contains(logCalls, name):
			step = len(call.Args) + 1
		case name == "With" && len(call.Args) > 1:
		case slices.Contains([]string{"failed", "Failed", "fault", "sampled", "LogAttrs"}, name):
			return // none, or made by slog
		case slices.Contains(logCalls, name) && of != "http" && of != "t":
			at = 1 + slices.IndexFunc(call.Args, func(e ast.Expr) bool { return strings.Contains(leadingText(e), " ") })
			if at == 0 {
				at = slices.IndexFunc(call.Args, func(e ast.Expr) bool { return leadingText(e) != "" })
			}
		default:
			return
		}
		for ; at >= 0 && at < len(call.Args); at += step {
			if _, ok := call.Args[at].(*ast.CallExpr); ok {
				break // of slog
			}
			key := leadingText(call.Args[at])
			if used[key] = true; !slices.Contains(attributes, key) && !(of == "slog" && key == "") {
				t.Errorf("%s: an attribute is named %q", files.Position(call.Args[at].Pos()), key)
			}
		}
	})
	for _, name := range attributes {
		if !used[name] {
			t.Errorf("nothing logs %s", name)
		}
	}
}

// TestTheIncidentsAreTrue: the lines and the metrics in which the guide sees an
// incident are there. That the metrics of the dashboard are is a test of
// middlewareprom.
func TestTheIncidentsAreTrue(t *testing.T) {
	guide := read(t, "../.github/OPERATING.md")
	dashboard := read(t, "../middleware/middlewareprom/grafana.json")
	_, text, _ := strings.Cut(guide, "\n## Incidents\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
	texts, lines := slices.Collect(maps.Keys(logTexts(t))), 0
	for _, quoted := range quoting.FindAllStringSubmatch(text, -1) {
		start := strings.TrimSuffix(quoted[1], "…")
		switch {
		case strings.HasPrefix(start, "sallyport_"):
			if !regexp.MustCompile(start + `(_bucket)?\b`).MatchString(dashboard) {
				t.Errorf("there is no metric %s", start)
			}
		case strings.HasPrefix(start, "sallyport "), start == "appendonly yes", !strings.Contains(start, " "):
		default:
			lines++
			if !slices.ContainsFunc(texts, func(text string) bool { return stands(quoted[1], text) }) {
				t.Errorf("nothing logs %q", quoted[1])
			}
		}
	}
	if lines < 8 {
		t.Errorf("found %d lines of the log only", lines)
	}
}

// TestTheGuideWatchesFiguresThatExist: each figure of the guide is a field of
// the figures, or a method of the store, that it is said to be from.
func TestTheGuideWatchesFiguresThatExist(t *testing.T) {
	guide := read(t, "../.github/OPERATING.md")
	from := map[string]reflect.Type{
		"idem.Runner.Stats":     reflect.TypeFor[idem.RunnerStats](),
		"idem.Memory.Stats":     reflect.TypeFor[idem.MemoryStats](),
		"keystore.Cached.Stats": reflect.TypeFor[keystore.CacheStats](),
		"idemsql.Store":         reflect.TypeFor[*idemsql.Store](),
		"ratelimit.Failover":    reflect.TypeFor[*ratelimit.Failover](),
		"ratelimit.Memory":      reflect.TypeFor[*ratelimit.Memory](),
	}
	figures := 0
	for line := range strings.Lines(guide) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[2], "`") {
			continue
		}
		of := from[strings.Split(cells[2], "`")[1]]
		if of == nil {
			continue
		}
		for _, quoted := range quoting.FindAllStringSubmatch(cells[1], -1) {
			figures++
			_, there := of.MethodByName(quoted[1])
			if of.Kind() == reflect.Struct {
				_, there = of.FieldByName(quoted[1])
			}
			if !there {
				t.Errorf("the guide watches %q, which %v does not have", quoted[1], of)
			}
		}
	}
	if figures < 8 {
		t.Errorf("found %d figures only", figures)
	}
}

// TestTheControlsNameTestsThatExist: each test of SECURITY.md is one of the
// repository.
func TestTheControlsNameTestsThatExist(t *testing.T) {
	var tests strings.Builder
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			tests.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "../.github/SECURITY.md"), -1)
	if len(names) < 20 {
		t.Errorf("found %d tests only", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), "\nfunc "+name[1]+"(t *testing.T)") {
			t.Errorf("there is no test %s", name[1])
		}
	}
}

// logTexts returns the first text of each call that logs, up to its first full
// stop, and where it is.
func logTexts(t *testing.T) map[string]string {
	texts := make(map[string]string)
	calls(t, func(files *token.FileSet, call *ast.CallExpr, of, name string) {
		if of == "http" || !slices.Contains(logCalls, name) { // http.Error answers a request
			return
		}
		for _, arg := range call.Args {
			if text := leadingText(arg); text != "" {
				text, _, _ = strings.Cut(text, ". ")
				if strings.Contains(text, " ") { // else it is the name of an attribute
					texts[strings.TrimSpace(text)] = files.Position(call.Pos()).String()
				}
				break
			}
		}
	})
	if len(texts) < 30 {
		t.Fatalf("found %d texts only", len(texts))
	}
	return texts
}

// calls visits each call of the library: of is what stands before the name of
// what is called, if that is a name.
func calls(t *testing.T, visit func(files *token.FileSet, call *ast.CallExpr, of, name string)) {
	for _, root := range []string{"../internal", "../middleware", "../idem", "../keystore", "../ratelimit", "../scope"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (strings.HasSuffix(path, "test") || entry.Name() == "testdata" ||
				strings.HasPrefix(entry.Name(), ".") && path != root):
				return filepath.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch called := call.Fun.(type) {
				case *ast.Ident:
					visit(files, call, "", called.Name)
				case *ast.SelectorExpr:
					of := "" // of what has no name
					if x, ok := called.X.(*ast.Ident); ok {
						of = x.Name
					}
					visit(files, call, of, called.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// leadingText returns the text that an expression begins with, "" if it is
// none.
func leadingText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		return leadingText(e.X) + leadingText(e.Y)
	}
	return ""
}
