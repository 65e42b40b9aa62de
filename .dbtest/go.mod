module github.com/sallyport-go/sallyport/dbtest

go 1.26

require (
	github.com/go-sql-driver/mysql v1.7.1
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/go-redis/v9 v9.7.3
	github.com/rs/xid v1.6.0
	github.com/sallyport-go/sallyport v0.0.0
	modernc.org/sqlite v1.56.0
)

require (
	github.com/sallyport-go/sallyport/idem/idempgx v0.0.0
	github.com/sallyport-go/sallyport/idem/idemredis v0.0.0
	github.com/sallyport-go/sallyport/ratelimit/ratelimitredis v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/ulule/limiter/v3 v3.11.2 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	modernc.org/libc v1.74.4 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
)

replace github.com/sallyport-go/sallyport => ../

replace github.com/sallyport-go/sallyport/ratelimit/ratelimitredis => ../ratelimit/ratelimitredis

replace github.com/sallyport-go/sallyport/idem/idemredis => ../idem/idemredis

replace github.com/sallyport-go/sallyport/idem/idempgx => ../idem/idempgx
