package middleware_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sallyport-go/sallyport"

// The domain packages know no HTTP, and nothing but what design and go.mod
// promise to an importer's build.
var mayImport = map[string][]string{
	"scope": {},
	"keystore": {"scope", "keystore/internal", "internal/arguments", "internal/calls",
		"github.com/hashicorp/golang-lru/v2"},
	"idem":                  {"idem/internal", "internal/calls"},
	"idem/internal/bounded": {},
	"idem/idemclient":       {"net/http"},
	"idem/internal/token":   {},
	"ratelimit":             {"internal/arguments", "internal/calls", "github.com/ulule/limiter/v3"},
	"middleware": {"scope", "keystore", "idem", "ratelimit", "middleware/internal", "internal/arguments",
		"internal/meter", "internal/transaction", "github.com/hashicorp/golang-lru/v2", "github.com/rs/xid", "net/http"},
	"keystore/keystoretest":   {"keystore", "scope"},
	"idem/idemtest":           {"idem"},
	"ratelimit/ratelimittest": {"ratelimit"},
	"keystore/keysql":         {"keystore", "scope", "internal/sqlschema"},
	"internal/sqlschema":      {},
	"keystore/keycli":         {"idem", "keystore", "scope"},
	"keystore/cmd/sallyport": {
		"idem", "keystore", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "modernc.org/sqlite",
	},
	"idem/internal/claims":      {"idem", "internal/sqlschema", "golang.org/x/sync"},
	"idem/idemsql":              {"idem", "internal/sqlschema"},
	"idem/idempgx":              {"idem", "github.com/jackc/pgx/v5"},
	"idem/idempgx/pgxretrytest": {"middleware/retrytest", "github.com/jackc/pgx/v5"},
	"idem/idemredis":            {"idem", "github.com/redis/go-redis/v9"},
	"ratelimit/ratelimitredis":  {"ratelimit", "github.com/hashicorp/golang-lru/v2", "github.com/redis/go-redis/v9"},

	"keystore/issuing":        {"keystore", "scope", "internal/arguments", "internal/transaction", "github.com/rs/xid"},
	"keystore/internal/field": {},
	"internal/transaction":    {},
	"internal/arguments":      {},
	"internal/calls":          {},
	"internal/meter":          {"idem"},
}

func TestImports(t *testing.T) {
	for pkg, allowed := range mayImport {
		for _, imported := range imports(t, filepath.Join("..", filepath.FromSlash(pkg))) {
			name := strings.TrimPrefix(imported, module+"/")
			standard := !strings.Contains(strings.Split(name, "/")[0], ".") && name == imported
			if standard && !strings.HasPrefix(name, "net/http") {
				continue
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return name == a || strings.HasPrefix(name, a+"/") }) {
				t.Errorf("%s imports %s; it may import the standard library without net/http and %v", pkg, imported, allowed)
			}
		}
	}
}

// A server that checks keys builds nothing that issues them, and no server
// builds what its clients do.
func TestServersBuildNothingElse(t *testing.T) {
	for _, test := range []struct{ under, without string }{{".", "keystore/issuing"}, {"..", "idem/idemclient"}} {
		seen := 0
		err := filepath.WalkDir(test.under, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if name := d.Name(); name == "testdata" || name == ".git" {
				return fs.SkipDir
			}
			files, err := filepath.Glob(filepath.Join(p, "*.go"))
			if seen += len(files); len(files) > 0 && slices.Contains(imports(t, p), module+"/"+test.without) {
				t.Errorf("%s imports %s", p, test.without)
			}
			return err
		})
		if err != nil || seen == 0 {
			t.Fatalf("%d files, %v", seen, err)
		}
	}
}

// imports lists what the files of a package import, its tests left out.
func imports(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(path.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	var all []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			all = append(all, imported)
		}
	}
	return all
}

// What go.mod requires, for a test too, is a floor for everybody who imports a
// package of the module. Whatever needs more is a module of its own.
func TestRequired(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if path, _, ok := strings.Cut(strings.TrimSpace(line), " v"); ok {
			got = append(got, strings.TrimPrefix(path, "require "))
		}
	}
	slices.Sort(got)
	want := []string{
		"github.com/hashicorp/golang-lru/v2", "github.com/pkg/errors", "github.com/rs/xid", "github.com/ulule/limiter/v3",
		"golang.org/x/sync",
	}
	if !slices.Equal(got, want) {
		t.Errorf("go.mod requires %v, want %v", got, want)
	}
}

// A clock that is set back holds nothing up. UnixNano is the wall clock's, and
// so is what Round(0) leaves. Of a lease counts the clock that ran further. The
// signature of a Gateway has a time for other processes. The UTC days of units come
// from one reading, at the start.
func TestNoWallClock(t *testing.T) {
	for _, pkg := range []string{"idem", "middleware",
		"middleware/internal/keyed", "middleware/internal/response", "middleware/internal/rawconn"} {
		files, _ := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*.go"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if base := filepath.Base(file); slices.Contains([]string{"runnerclock.go", "gateway.go", "memoryunits.go"}, base) {
				continue
			}
			reads := strings.Contains(string(text), ".Unix") || strings.Contains(string(text), ".Round(0)")
			if reads && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s reads the wall clock", file)
			}
		}
	}
}

// Nothing but the packages listed above and the HTTP ones may come about.
func TestEveryPackageHasItsRule(t *testing.T) {
	http := []string{"example", "middleware", "keystore/console"} // and below
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(p, ".."+string(filepath.Separator)))
		if d.IsDir() && p != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		pkg := path.Dir(name)
		_, ruled := mayImport[pkg]
		if !ruled && !slices.ContainsFunc(http, func(h string) bool { return pkg == h || strings.HasPrefix(pkg, h+"/") }) {
			t.Errorf("package %s has no rule in mayImport", pkg)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
