package idemsql_test

import (
	"database/sql"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

func TestWithTx(t *testing.T) {
	if tx, ok := idemsql.Tx(t.Context()); ok || tx != nil {
		t.Errorf("without a transaction: got %v", tx)
	}
	want := new(sql.Tx)
	if tx, ok := idemsql.Tx(idemsql.WithTx(t.Context(), want)); !ok || tx != want {
		t.Errorf("got %p, %t, want %p", tx, ok, want)
	}
}
