package retrytest

import (
	"database/sql"
	"testing"
)

func TestOriginOf(t *testing.T) {
	const module, cache = "github.com/sallyport-go/sallyport", "/go/pkg/mod/"
	for _, test := range []struct {
		function, file string
		want           origin
	}{
		{module + "/middleware.serve", cache + module + "@v0.1.0/middleware/path.go", ours},
		{module + "/idem.Begin", "/src/host/vendor/" + module + "/idem/runner.go", ours},
		{module + "/idem/idemsql.Begin", cache + module + "@v0.1.0/idem/idemsql/store.go", foreign},
		{module + "/idem.TestBegin", "/src/sallyport/idem/runner_test.go", host},
		{"github.com/jackc/pgx/v5.Exec", cache + "github.com/jackc/pgx/v5@v5.12.0/conn.go", foreign},
		{"database/sql.OpenDB", fileOf(sql.OpenDB), foreign},
		{"parcels/http.Create", "/src/parcels/http/create.go", host},
	} {
		if got := originOf(test.function, test.file); got != test.want {
			t.Errorf("%s in %s: got %d, want %d", test.function, test.file, got, test.want)
		}
	}
}

// With -trimpath a file begins with its package, also of a module without a dot.
func TestOriginOfTrimmed(t *testing.T) {
	oldStandard, oldModule := standard, module
	defer func() { standard, module = oldStandard, oldModule }()
	if module != "github.com/sallyport-go/sallyport" {
		t.Errorf("the module of this test is %q", module)
	}
	standard, module = "", "parcels"
	for file, want := range map[string]origin{
		"database/sql/sql.go": foreign, "slices/sort.go": foreign,
		"parcels/http/create.go": host, "parcels.example/http/create.go": host,
		"parcels.example/bank@v1.0.0/bank.go": foreign,
	} {
		if got := originOf("", file); got != want {
			t.Errorf("%s: got %d, want %d", file, got, want)
		}
	}
}
