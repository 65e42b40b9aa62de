package issuing_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestPageSize(t *testing.T) {
	for limit, want := range map[int]int{-1: 50, 0: 50, 1: 1, 50: 50, 199: 199, 200: 200, 201: 200, 1 << 40: 200} {
		if got := (issuing.Page{Limit: limit}).Size(); got != want {
			t.Errorf("a page with the limit %d has %d keys, want %d", limit, got, want)
		}
	}
}
