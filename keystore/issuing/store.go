package issuing

import "github.com/sallyport-go/sallyport/keystore"

// A Store does all that this package asks of one: it manages keys, keeps the
// audit and the use of keys beside them, and tells the caches of other
// processes what has changed. That of [NewMemory] is one, and so are those of
// package keysql. Of a store of one's own a [Manager] is enough.
type Store interface {
	Auditor
	UsageReader
	keystore.Feed
}
