module github.com/sallyport-go/sallyport/middleware/middlewareprom

go 1.26

require (
	github.com/prometheus/client_golang v1.19.1
	github.com/sallyport-go/sallyport v0.0.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/prometheus/client_model v0.5.0 // indirect
	github.com/prometheus/common v0.48.0 // indirect
	github.com/prometheus/procfs v0.12.0 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/ulule/limiter/v3 v3.11.2 // indirect
	golang.org/x/sys v0.44.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)

replace github.com/sallyport-go/sallyport => ../..
