module github.com/sallyport-go/sallyport/redisnew

go 1.26

require (
	github.com/redis/go-redis/v9 v9.22.0
	github.com/sallyport-go/sallyport v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/ulule/limiter/v3 v3.11.2 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/sallyport-go/sallyport => ../
