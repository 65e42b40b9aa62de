package keysql_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// blocks returns the code of a language in a section of the operator's guide.
func blocks(t *testing.T, section, language string) (all []string) {
	t.Helper()
	guide, err := os.ReadFile("../../.github/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(guide), "\n### "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text, _, _ = strings.Cut(text, "\n### ")
	for {
		_, rest, ok := strings.Cut(text, "\n```"+language+"\n")
		if !ok {
			return all
		}
		code, rest, _ := strings.Cut(rest, "\n```\n")
		all, text = append(all, code), rest
	}
}

// The queries of the guide run.
func TestTheGuidesQueries(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	db := d.tool(t)
	if err := idemsql.Postgres(db, idemsql.Options{}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for section, want := range map[string]string{"A store does not answer": "false", "A disk is full": "sallyport_"} {
		found := blocks(t, section, "sql")
		if len(found) == 0 {
			t.Errorf("%s: the guide has no query", section)
		}
		for _, code := range found {
			for statement := range strings.SplitSeq(strings.TrimSuffix(code, ";"), ";\n") {
				got := values(t, db, statement)
				if len(got) == 0 || !strings.HasPrefix(string(got[0]), want) && string(got[0]) != "0" {
					t.Errorf("%s: got %q, want %s", section, got, want)
				}
			}
		}
	}
}
