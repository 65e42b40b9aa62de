module github.com/sallyport-go/sallyport/middleware/middlewareotel

go 1.26

require (
	github.com/sallyport-go/sallyport v0.0.0
	go.opentelemetry.io/otel v1.35.0
	go.opentelemetry.io/otel/metric v1.35.0
	go.opentelemetry.io/otel/trace v1.35.0
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/ulule/limiter/v3 v3.11.2 // indirect
)

replace github.com/sallyport-go/sallyport => ../..
