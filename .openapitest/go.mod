module github.com/sallyport-go/sallyport/openapitest

go 1.26

require (
	github.com/getkin/kin-openapi v0.152.0
	github.com/sallyport-go/sallyport v0.0.0
)

require (
	github.com/go-openapi/jsonpointer v0.22.5 // indirect
	github.com/go-openapi/swag/jsonname v0.25.5 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/oasdiff/yaml v0.1.1 // indirect
	github.com/oasdiff/yaml3 v0.0.14 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	github.com/ulule/limiter/v3 v3.11.2 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace github.com/sallyport-go/sallyport => ../
