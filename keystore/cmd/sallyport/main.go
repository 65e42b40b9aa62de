// Sallyport issues, shows and ends API keys in a database of keysql.
//
//	go install github.com/sallyport-go/sallyport/keystore/cmd/sallyport@latest
//	export SALLYPORT_DSN='file:keys.db'
//	sallyport migrate
//	sallyport issue 'Nightly import' -org acme -env sandbox -scopes tasks:read,tasks:write
//
// It is for the zero keystore.Service. One with scopes or a prefix of its own
// calls package keycli.
package main

import (
	"os"

	"github.com/sallyport-go/sallyport/keystore/keycli"
)

func main() {
	var db database
	code := keycli.Main(keycli.Config{Open: db.issuer, Migrate: db.migrate, Replies: db.replies, Help: help})
	db.close()
	os.Exit(code)
}
