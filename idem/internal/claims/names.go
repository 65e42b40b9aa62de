package claims

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

// tables are the names of the tables in statements, behind the prefix.
var tables = []string{"idem", "used", "usage"}

// How Postgres says where the table is, and what PostgresHome stands for there.
// The answer is the same where the names in the question have their schema.
const (
	PostgresHome  = "'sallyport_idem'"
	PostgresWhere = `
		SELECT quote_ident(n.nspname), quote_literal(quote_ident(n.nspname) || '.' || quote_ident(c.relname))
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('sallyport_idem')`
)

// Names writes the names of the tables into statements: with their schema, once it
// is known, because a handler may leave another search_path to what follows. All
// of them are in the schema of the first.
type Names struct {
	prefix, home, where string
	texts               atomic.Pointer[texts]
}

// texts are statements with one form of the names.
type texts struct {
	replacer *strings.Replacer
	known    sync.Map // of string, by statement
	located  bool
}

// NewNames returns the Names of tables with a prefix. where asks for the schema
// and for what home is to be replaced by; an empty one is never asked.
func NewNames(prefix, home, where string) *Names {
	n := &Names{prefix: prefix, home: home, where: where}
	n.write("", where == "")
	return n
}

// write lets the texts have what stands before each name, after pairs of what
// else they replace.
func (n *Names) write(before string, located bool, pairs ...string) {
	for _, table := range tables {
		pairs = append(pairs, sqlschema.DefaultPrefix+table, before+n.prefix+table)
	}
	n.texts.Store(&texts{replacer: strings.NewReplacer(pairs...), located: located})
}

// Locate finds out the schema, unless it is known or there is no table. A
// connection that no handler has used yet is asked.
func (n *Names) Locate(ctx context.Context, ask One) error {
	if n.texts.Load().located {
		return nil
	}
	var schema, home string
	switch err := ask(ctx, n.where, []any{&schema, &home}); {
	case err == nil:
		n.write(schema+".", true, n.home, home)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	return nil
}

// Text returns a statement with the names in it.
func (n *Names) Text(statement string) string {
	t := n.texts.Load()
	if text, ok := t.known.Load(statement); ok {
		return text.(string)
	}
	text := t.replacer.Replace(statement)
	t.known.Store(statement, text)
	return text
}
