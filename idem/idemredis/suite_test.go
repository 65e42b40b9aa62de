package idemredis_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

func TestSuite(t *testing.T) {
	client := connect(t, options(t))
	idemtest.Suite{New: func(t *testing.T) idem.Store {
		return idemredis.New(client, idemredis.Options{Prefix: ownPrefix(t, client)})
	}}.Run(t)
}
