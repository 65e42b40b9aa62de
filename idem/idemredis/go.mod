module github.com/sallyport-go/sallyport/idem/idemredis

go 1.26

require (
	github.com/redis/go-redis/v9 v9.7.3
	github.com/sallyport-go/sallyport v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/ulule/limiter/v3 v3.11.2 // indirect
)

replace github.com/sallyport-go/sallyport => ../..
