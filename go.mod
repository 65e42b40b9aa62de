module github.com/sallyport-go/sallyport

go 1.26

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7
	github.com/rs/xid v1.6.0
	github.com/ulule/limiter/v3 v3.11.2
	golang.org/x/sync v0.7.0
)

require github.com/pkg/errors v0.9.1 // indirect
