package orms_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

const entSchema = `package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
)

type Parcel struct{ ent.Schema }

func (Parcel) Fields() []ent.Field { return []ent.Field{field.String("id"), field.String("target")} }
func (Parcel) Edges() []ent.Edge {
	return []ent.Edge{edge.To("items", Item.Type).StorageKey(edge.Column("parcel"))}
}

type Item struct{ ent.Schema }

func (Item) Fields() []ent.Field { return []ent.Field{field.String("id")} }
`

// TestEnt has ent generate a client in a copy of this folder, and runs
// testdata/client_test.go there. The client has more lines than all of .newest.
func TestEnt(t *testing.T) {
	t.Parallel()
	servers.Postgres.Address(t)
	servers.SQLite.Met(t)
	root, rootErr := filepath.Abs("../..")
	mod, modErr := os.ReadFile("../go.mod")
	sum, sumErr := os.ReadFile("../go.sum")
	test, testErr := os.ReadFile("testdata/client_test.go")
	module := t.TempDir()
	folder := filepath.Join(module, "orms")
	err := errors.Join(rootErr, modErr, sumErr, testErr, os.CopyFS(folder, os.DirFS(".")),
		os.MkdirAll(filepath.Join(folder, "ent/schema"), 0o755))
	for name, text := range map[string]string{
		"go.mod":                    strings.ReplaceAll(string(mod), "=> ../", "=> "+root+"/"),
		"go.sum":                    string(sum),
		"orms/client_test.go":       string(test),
		"orms/ent/schema/schema.go": entSchema,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(module, name), []byte(text), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	var said []byte
	for _, arguments := range [][]string{
		{"tool", "ent", "generate", "./ent/schema"},
		{"test", "-count=1", "-v", "-run", "^TestEntClient$", "."},
	} {
		command := exec.CommandContext(t.Context(), "go", arguments...)
		command.Dir = folder
		if said, err = command.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", arguments, err, said)
		}
	}
	if !bytes.Contains(said, []byte("\n--- PASS: TestEntClient ")) {
		t.Errorf("the tests of the client did not run: %s", said)
	}
}
