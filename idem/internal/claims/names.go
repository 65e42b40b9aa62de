package claims

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
)

// table is the name of the table as it stands in statements.
const table = "sallyport_idem"

// How Postgres says where the table is, and what PostgresHome stands for there.
// The answer is the same where the names in the question have their schema.
const (
	PostgresHome  = "'sallyport_idem'"
	PostgresWhere = `
		SELECT quote_ident(n.nspname), quote_literal(quote_ident(n.nspname) || '.' || quote_ident(c.relname))
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('sallyport_idem')`
)

// Names writes the name of the table into statements: with its schema, once it
// is known, because a handler may leave another search_path to what follows.
type Names struct {
	prefix, home, where string
	texts               atomic.Pointer[texts]
}

// texts are statements with one form of the name.
type texts struct {
	replacer *strings.Replacer
	known    sync.Map // of string, by statement
	located  bool
}

// NewNames returns the Names of a table with a prefix. where asks for the schema
// and for what home is to be replaced by; an empty one is never asked.
func NewNames(prefix, home, where string) *Names {
	n := &Names{prefix: prefix, home: home, where: where}
	n.texts.Store(&texts{replacer: strings.NewReplacer(table, prefix+"idem"), located: where == ""})
	return n
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
		n.texts.Store(&texts{
			replacer: strings.NewReplacer(n.home, home, table, schema+"."+n.prefix+"idem"), located: true,
		})
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	return nil
}

// Text returns a statement with the name in it.
func (n *Names) Text(statement string) string {
	t := n.texts.Load()
	if text, ok := t.known.Load(statement); ok {
		return text.(string)
	}
	text := t.replacer.Replace(statement)
	t.known.Store(statement, text)
	return text
}
