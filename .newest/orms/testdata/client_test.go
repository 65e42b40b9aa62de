package orms_test

import (
	"context"
	"crypto/rand"
	"testing"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/sallyport-go/sallyport/newest/orms/ent"
)

// entNested makes a parcel with two items and changes it, which are transactions
// to ent.
func entNested(ctx context.Context, db *ent.Client) error {
	items, err := db.Item.CreateBulk(
		db.Item.Create().SetID(rand.Text()), db.Item.Create().SetID(rand.Text()),
	).Save(ctx)
	if err != nil {
		return err
	}
	parcel, err := db.Parcel.Create().SetID(rand.Text()).SetTarget("Lisbon").AddItems(items...).Save(ctx)
	if err != nil {
		return err
	}
	return parcel.Update().SetTarget("Porto").Exec(ctx)
}

func TestEntClient(t *testing.T) {
	right := map[string]handler{
		"nested": func(ctx context.Context, s server) error {
			return entNested(ctx, ent.NewClient(ent.Driver(s.entJoined(ctx))))
		},
		"transaction of its own": func(ctx context.Context, s server) error {
			tx, err := ent.NewClient(ent.Driver(s.entJoined(ctx))).Tx(ctx)
			if err != nil {
				return err
			}
			if err := entNested(ctx, tx.Client()); err != nil {
				return err
			}
			return tx.Commit()
		},
	}
	beside := func(ctx context.Context, s server) error {
		db := ent.NewClient(ent.Driver(entsql.OpenDB(s.dialect, s.pool)))
		return db.Parcel.Create().SetID(rand.Text()).SetTarget("Lisbon").Exec(ctx)
	}
	for _, on := range []database{onSQLite, onPostgres} {
		for name, create := range right {
			t.Run(on.dialect+"/"+name, func(t *testing.T) {
				t.Parallel()
				suite(t, on, joined, create).Run(t)
			})
		}
		t.Run(on.dialect+"/beside the transaction", func(t *testing.T) {
			t.Parallel()
			mustAccuse(t, suite(t, on, joined, beside), "ent/parcel_create.go", on.accuses)
		})
	}
}
