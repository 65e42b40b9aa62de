package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// stores is where the server keeps what it must remember.
type stores struct {
	keys    keystore.Store
	replies idem.Store
	limits  ratelimit.Store
	tasks   taskStore

	inDatabase bool                              // keys are kept; tasks and replies are written in one transaction
	upkeep     []func(ctx context.Context) error // run for as long as the server does
	closers    []func() error
	pings      []func(ctx context.Context) error // of what has to be reached
}

// memoryStores forget everything when the process ends.
func memoryStores() stores {
	return stores{keys: issuing.NewMemory(), replies: &idem.Memory{}, limits: &ratelimit.Memory{}, tasks: &memoryTasks{}}
}

// openStores returns the stores that the flags name, each ready for use. A
// database keeps keys, tasks and replies; Redis counts the limits, and keeps
// the replies where there is no database.
func openStores(ctx context.Context, c config, logger *slog.Logger) (stores, error) {
	s := memoryStores()
	for _, store := range []struct {
		flag, value string
		open        func(context.Context, config, *slog.Logger) error
	}{
		{"-postgres", c.postgres, s.openPostgres},
		{"-sqlite", c.sqlite, s.openSQLite},
		{"-redis", c.redis, s.openRedis},
	} {
		if store.value == "" {
			continue
		}
		if err := store.open(ctx, c, logger); err != nil {
			return s, errors.Join(fmt.Errorf("%s: %w", store.flag, err), s.close())
		}
	}
	return s, nil
}

func (s *stores) close() error {
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// serveReady answers 200 when every store can be reached.
func (s *stores) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	for _, ping := range s.pings {
		if err := ping(ctx); err != nil {
			http.Error(w, "a store does not answer", http.StatusServiceUnavailable)
			return
		}
	}
	io.WriteString(w, "ready\n")
}

func (s *stores) openPostgres(ctx context.Context, c config, logger *slog.Logger) error {
	db, err := sql.Open("pgx", c.postgres)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(32)
	return s.useSQL(ctx, db, keysql.Postgres(db, keysql.Options{}), idemsql.Postgres(db, idemsql.Options{Logger: logger}),
		&sqlTasks{db: db})
}

func (s *stores) openSQLite(ctx context.Context, c config, logger *slog.Logger) error {
	// The driver's error names no path.
	f, err := os.OpenFile(c.sqlite, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	name := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(c.sqlite) // of a URI
	db, err := sql.Open("sqlite", "file:"+name+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(8)
	return s.useSQL(ctx, db, keysql.SQLite(db, keysql.Options{}), idemsql.SQLite(db, idemsql.Options{Logger: logger}),
		&sqlTasks{db: db, sqlite: true})
}

func (s *stores) useSQL(ctx context.Context, db *sql.DB, keys *keysql.Store, replies *idemsql.Store,
	tasks *sqlTasks) error {
	s.closers = append(s.closers, db.Close)
	for _, prepare := range []func(context.Context) error{
		keys.Migrate, replies.Migrate, tasks.migrate, keys.Check, replies.Check,
	} {
		if err := prepare(ctx); err != nil {
			return err
		}
	}
	s.keys, s.replies, s.tasks, s.inDatabase = keys, replies, tasks, true
	s.pings = append(s.pings, db.PingContext)
	s.upkeep = append(s.upkeep, replies.Run)
	return nil
}

func (s *stores) openRedis(ctx context.Context, c config, logger *slog.Logger) error {
	o, err := redis.ParseURL(c.redis)
	if bad, ok := errors.AsType[*url.Error](err); ok {
		err = bad.Err // without the URL, which has a password
	}
	if err != nil {
		return err
	}
	o.ContextTimeoutEnabled = true
	if c.patience > 0 {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.patience, c.patience, c.patience, c.patience
	}
	client := redis.NewClient(o)
	s.closers = append(s.closers, client.Close)
	s.pings = append(s.pings, func(ctx context.Context) error { return client.Ping(ctx).Err() })
	limits := ratelimitredis.New(client, ratelimitredis.Options{
		Prefix:   c.limitsPrefix,
		Failover: ratelimit.FailoverOptions{Timeout: c.patience, Logger: logger},
	})
	s.limits = limits
	if err := limits.Ready(ctx); err != nil || s.inDatabase {
		return err
	}
	replies := idemredis.New(client, idemredis.Options{})
	s.replies = replies
	return replies.Check(ctx)
}
