package keystoretest_test

import (
	"context"
	"sync"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// brokenChildren break what is promised of keys with a parent.
var brokenChildren = []defect{
	{"has no column for the parent", []string{"Child/Ancestors", "Child/List"},
		edited(func(k *keystore.Key) { k.Parent = "" })},
	{"returns a child alone", []string{"Child/Ancestors"}, func(b *broken) {
		b.findIssued = func(ctx context.Context, organization, actor, token string) (*keystore.Key, error) {
			k, err := b.Store.FindIssued(ctx, organization, actor, token)
			if k != nil {
				k.Ancestors = nil
			}
			return k, err
		}
	}},
	{"remembers ancestors", []string{"Child/Ancestors", "Child/Race"}, func(b *broken) {
		var first sync.Map
		looking(func(_ *broken, k *keystore.Key, err error) (*keystore.Key, error) {
			if err == nil {
				seen, _ := first.LoadOrStore(k.ID, k.Ancestors)
				k.Ancestors = seen.([]*keystore.Key)
			}
			return k, err
		})(b)
	}},
	{"takes the parent from any organization", []string{"Child/Orphan"},
		looking(func(b *broken, k *keystore.Key, err error) (*keystore.Key, error) {
			if err == nil && k.Parent != "" && k.Ancestors == nil {
				k.Ancestors = []*keystore.Key{b.anywhere(k.Parent)}
			}
			return k, err
		})},
	{"counts what is listed", []string{"Child/Count"}, listing(func(q issuing.Query, page *issuing.Listing) {
		for _, k := range page.Keys {
			page.Children[k.ID]++
		}
	})},
	{"lists children among the others", []string{"Child/List"}, func(b *broken) {
		b.list = func(ctx context.Context, organization string, q issuing.Query) (issuing.Listing, error) {
			page, err := b.Store.List(ctx, organization, q)
			for _, k := range page.Keys {
				q.Parent = k.ID
				children, _ := b.Store.List(ctx, organization, q)
				page.Keys = append(page.Keys, children.Keys...)
			}
			return page, err
		}
	}},
}
