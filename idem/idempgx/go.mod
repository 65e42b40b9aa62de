module github.com/sallyport-go/sallyport/idem/idempgx

go 1.26

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/sallyport-go/sallyport v0.0.0
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/ulule/limiter/v3 v3.11.2 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace github.com/sallyport-go/sallyport => ../..
