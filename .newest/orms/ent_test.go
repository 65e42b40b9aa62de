package orms_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/entc/load"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// Parcel and Item are the schema of ent's client.
type Parcel struct{ ent.Schema }

func (Parcel) Fields() []ent.Field { return []ent.Field{field.String("id"), field.String("target")} }
func (Parcel) Edges() []ent.Edge {
	return []ent.Edge{edge.To("items", Item.Type).StorageKey(edge.Column("parcel"))}
}

type Item struct{ ent.Schema }

func (Item) Fields() []ent.Field { return []ent.Field{field.String("id")} }

// generate has ent write a client to a folder: what its command does, without a
// program that first reads the schema.
func generate(folder string) error {
	storage, err := gen.NewStorage("sql")
	var schemas []*load.Schema
	for _, s := range []ent.Interface{Parcel{}, Item{}} {
		text, marshalErr := load.MarshalSchema(s)
		schema, unmarshalErr := load.UnmarshalSchema(text)
		schemas, err = append(schemas, schema), errors.Join(err, marshalErr, unmarshalErr)
	}
	if err != nil {
		return err
	}
	config := &gen.Config{Target: folder, Package: "github.com/sallyport-go/sallyport/newest/orms/ent", Storage: storage}
	graph, err := gen.NewGraph(config, schemas...)
	if err != nil {
		return err
	}
	return graph.Gen()
}

// TestEnt generates a client in a copy of this folder, and runs
// testdata/client_test.go there. The client has more lines than all of .newest.
func TestEnt(t *testing.T) {
	t.Parallel()
	servers.Postgres.Address(t)
	servers.SQLite.Met(t)
	root, rootErr := filepath.Abs("../..")
	mod, modErr := os.ReadFile("../go.mod")
	module := t.TempDir()
	folder := filepath.Join(module, "orms")
	if err := errors.Join(rootErr, modErr, os.CopyFS(folder, os.DirFS(".")),
		os.Rename(filepath.Join(folder, "testdata/client_test.go"), filepath.Join(folder, "client_test.go")),
		os.Remove(filepath.Join(folder, "ent_test.go")),
		os.WriteFile(filepath.Join(module, "go.mod"),
			[]byte(strings.ReplaceAll(string(mod), "=> ../", "=> "+root+"/")), 0o644),
		os.Symlink(filepath.Join(root, ".newest/go.sum"), filepath.Join(module, "go.sum")),
		generate(filepath.Join(folder, "ent"))); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-v", "-run", "^TestEntClient$", ".")
	command.Dir = folder
	if said, err := command.CombinedOutput(); err != nil || !bytes.Contains(said, []byte("\n--- PASS: TestEntClient ")) {
		t.Errorf("the tests of the client: %v\n%s", err, said)
	}
}
