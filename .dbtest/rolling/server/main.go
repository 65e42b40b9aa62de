// Server is the service that the test of rolling deploys builds twice, of the
// previous version of the library and of this one. A later test builds the
// previous one from the text that its commit has, so the flags and paths below
// are a format too: add to them, and leave what is there.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"
	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/scope"
)

var (
	driver  = flag.String("driver", "", "of database/sql: pgx, mysql or sqlite")
	dsn     = flag.String("dsn", "", "of the database with the keys, the tasks and, without -replies redis, the replies")
	replies = flag.String("replies", "sql", "where the replies are: sql or redis")
	cache   = flag.String("redis", "", "URL of the Redis that counts the limits")
	prefix  = flag.String("prefix", "", "of the names in Redis")
	ahead   = flag.Duration("ahead", 0, "for how long units of the limits are taken ahead")
	native  = flag.Bool("native", false, "whether pgx is used without database/sql for the replies and the tasks")
	same    = flag.String("same", "20-D", "the limit that both versions have")
	changed = flag.String("changed", "20-D", "the limit that the versions have under one name, each another")
)

// patience is longer than a store takes on a busy machine: a limit that was
// counted without Redis, or a question that was given up, would prove nothing.
const patience = 30 * time.Second

// lease is how long the claims of a process outlive it.
const lease = 3 * time.Second

// latency is how long a create takes after its task is stored, so that a
// process that is killed has some in progress.
const latency = 20 * time.Millisecond

func main() {
	flag.Parse()
	go func() { // a test that was cut off leaves no server behind
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	db, err := sql.Open(*driver, *dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(16)
	keys, answers, err := open(ctx, db)
	if err != nil {
		return err
	}
	o, err := redis.ParseURL(*cache)
	if err != nil {
		return err
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	client := redis.NewClient(o)
	defer client.Close()
	limits := ratelimitredis.New(client, ratelimitredis.Options{Prefix: *prefix + "rate", Ahead: *ahead,
		Failover: ratelimit.FailoverOptions{Timeout: patience}})
	if err := limits.Ready(ctx); err != nil {
		return err
	}
	if *replies == "redis" {
		answers = idemredis.New(client, idemredis.Options{Prefix: *prefix + "idem:"})
	}

	// A key that is revoked elsewhere is refused because of the feed, or not
	// for an hour.
	cached := keystore.NewCached(keys, keystore.CacheOptions{TTL: time.Hour, NegativeTTL: time.Hour, Timeout: patience,
		FeedInterval: 50 * time.Millisecond})
	upkeep, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go cached.Run(upkeep)
	uses := keystore.NewUses(cached, keystore.UsesOptions{Interval: 50 * time.Millisecond})
	written := make(chan error, 1)
	go func() { written <- uses.Run(upkeep) }()

	runner := func(join bool) middleware.IdempotencyOptions {
		return middleware.IdempotencyOptions{Runner: idem.NewRunner(answers,
			idem.Options{Join: join, Lease: lease, Timeout: patience, Draining: ctx.Done()})}
	}
	leased := runner(false)
	api := middleware.NewAPI(cached, middleware.Options{
		Base:        "/api/v1",
		Uses:        uses,
		RateLimit:   middleware.RateLimitOptions{Store: limits},
		Idempotency: leased,
		Hooks:       &middleware.Hooks{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))},
	})
	need := middleware.Require(scope.TasksWrite)
	api.Handle("POST /api/v1/leased", need, create(db, false))
	api.Handle("POST /api/v1/streamed", need, create(db, true))
	if *replies == "sql" {
		joined := runner(true)
		api.Handle("POST /api/v1/joined", need, create(db, false), middleware.RouteOptions{Idempotency: joined})
	}
	for name, text := range map[string]string{"same": *same, "changed": *changed} {
		api.HandleFunc("GET /api/v1/"+name, middleware.Require(scope.TasksRead), func(http.ResponseWriter, *http.Request) {},
			middleware.RouteOptions{Policy: &ratelimit.Policy{Name: name, Limit: ratelimit.MustParse(text)}})
	}

	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	manage(mux, issuing.New(cached, issuing.Options{}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	fmt.Printf("http://%s\n", ln.Addr())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	drain := context.WithoutCancel(ctx)
	err = errors.Join(srv.Shutdown(drain), leased.Runner.WaitSettled(drain))
	end()
	return errors.Join(err, <-written)
}

// open makes the tables, or brings them up to date.
func open(ctx context.Context, db *sql.DB) (issuing.Store, idem.Store, error) {
	keys, replies := keysql.Postgres, idemsql.Postgres
	switch *driver {
	case "mysql":
		keys, replies = keysql.MySQL, idemsql.MySQL
	case "sqlite":
		keys, replies = keysql.SQLite, idemsql.SQLite
	}
	k, r := keys(db, keysql.Options{}), replies(db, idemsql.Options{})
	if err := errors.Join(k.Migrate(ctx), r.Migrate(ctx)); err != nil || !*native {
		return k, r, err
	}
	pool, err := pgxpool.New(ctx, *dsn)
	return k, idempgx.New(pool, idempgx.Options{}), err
}

// create adds a task with the title that the body holds. A streamed response
// is flushed in parts.
func create(db *sql.DB, streamed bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		title, _ := io.ReadAll(r.Body)
		id := xid.New().String() // and the title has no quotes
		insert := db.ExecContext
		if tx, ok := idemsql.Tx(r.Context()); ok {
			insert = tx.ExecContext
		}
		if tx, ok := idempgx.Tx(r.Context()); ok {
			insert = func(ctx context.Context, text string, _ ...any) (sql.Result, error) {
				_, err := tx.Exec(ctx, text)
				return nil, err
			}
		}
		if _, err := insert(r.Context(), fmt.Sprintf("INSERT INTO rolling_tasks (id, title) VALUES ('%s', '%s')", id,
			title)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		<-time.After(latency)
		if streamed {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.WriteHeader(http.StatusCreated)
		for _, part := range []string{"id: ", id, "\ntitle: ", string(title), "\n"} {
			io.WriteString(w, part)
			if streamed {
				_ = http.NewResponseController(w).Flush()
			}
		}
	})
}

// manage lets the test issue, read and revoke keys, make children of them, and
// erase an organization.
func manage(mux *http.ServeMux, issuer *issuing.Issuer) {
	mux.HandleFunc("POST /issue", func(w http.ResponseWriter, r *http.Request) {
		secret, key, err := issuer.Issue(r.Context(), keystore.Key{
			Organization: cmp.Or(r.FormValue("organization"), "org"), Name: "deployed", Environment: keystore.Production,
			Scopes:     []scope.Name{scope.TasksRead, scope.TasksWrite},
			Attributes: map[string]string{"plan": "gold"},
			Networks:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			ExpiresAt:  time.Now().Add(time.Hour),
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "%s %s", secret.Reveal(), key.ID)
	})
	mux.HandleFunc("GET /key/{id}", func(w http.ResponseWriter, r *http.Request) {
		k, err := issuer.Key(r.Context(), "org", r.PathValue("id"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, k.Environment, k.Name, k.Hint, k.Scopes, k.Attributes, k.Networks, k.CreatedBy,
			k.CreatedAt.UnixMicro(), k.ExpiresAt.UnixMicro(), k.RevokedAt.UnixMicro(), k.Suspended, k.Version)
	})
	mux.HandleFunc("POST /revoke/{id}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := issuer.Revoke(r.Context(), "org", r.PathValue("id")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /delegate/{id}", func(w http.ResponseWriter, r *http.Request) {
		secret, key, err := issuer.Delegate(r.Context(), keystore.Key{Organization: "org", Parent: r.PathValue("id"),
			Scopes: []scope.Name{scope.TasksRead}, ExpiresAt: time.Now().Add(10 * time.Minute)})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "%s %s", secret.Reveal(), key.ID)
	})
	mux.HandleFunc("POST /erase/{organization}", func(w http.ResponseWriter, r *http.Request) {
		keys, entries, err := issuer.Erase(r.Context(), r.PathValue("organization"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, keys, entries)
	})
}
