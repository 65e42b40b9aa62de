package pgxretrytest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/planted"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idempgx/pgxretrytest"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

const insert = "INSERT INTO parcels (id, target) VALUES ($1, 'Lisbon')"

type create func(ctx context.Context, pool *pgxpool.Pool) error

// suite is that of a server whose handler answers 500 to an error.
func suite(t testing.TB, mode pgx.QueryExecMode, o idem.Options, create create) retrytest.Suite {
	t.Helper()
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig = pgtest.Schema(t)
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), "CREATE TABLE parcels (id text PRIMARY KEY, target text)")
	if err := errors.Join(err, idempgx.New(pool, idempgx.Options{}).Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	return retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			pool := pgxretrytest.Pool(p, config)
			store := idempgx.New(pool, idempgx.Options{Logger: quiet})
			return planted.Server(p, store, o, func(w http.ResponseWriter, r *http.Request) {
				if err := create(r.Context(), pool); err != nil {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, "a parcel to Lisbon")
			})
		},
		Creates: planted.Parcels,
		Effects: map[string]func(context.Context) (int, error){
			"parcels": func(ctx context.Context) (n int, err error) {
				err = pool.QueryRow(ctx, "SELECT count(*) FROM parcels").Scan(&n)
				return n, err
			},
		},
	}
}

var joined, leases = idem.Options{Join: true}, idem.Options{}

var modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol}

// The suites wait more than they compute.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestWrongHandlers(t *testing.T) {
	for name, wrong := range map[string]struct {
		options idem.Options
		says    string
		create  create
	}{
		"pool beside the transaction": {joined, "idempgx.Tx", func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, insert, rand.Text()) // here: pool beside the transaction
			return err
		}},
		"a batch beside the transaction": {joined, "idempgx.Tx", func(ctx context.Context, pool *pgxpool.Pool) error {
			b := &pgx.Batch{}
			b.Queue(insert, rand.Text())
			b.Queue(insert, rand.Text())
			return pool.SendBatch(ctx, b).Close() // here: a batch beside the transaction
		}},
		"error swallowed": {leases, "answer 500", func(ctx context.Context, pool *pgxpool.Pool) error {
			pool.Exec(ctx, insert, rand.Text()) // here: error swallowed
			return nil
		}},
		"retries of its own": {leases, "within a request", func(ctx context.Context, pool *pgxpool.Pool) (err error) {
			for range 3 {
				if _, err = pool.Exec(ctx, insert, rand.Text()); err == nil { // here: retries of its own
					break
				}
			}
			return err
		}},
	} {
		for _, mode := range modes {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				planted.MustAccuse(t, suite(t, mode, wrong.options, wrong.create), name, wrong.says)
			})
		}
	}
}

func TestRightHandlers(t *testing.T) {
	for name, right := range map[string]struct {
		options idem.Options
		create  create
	}{
		"joined": {joined, func(ctx context.Context, _ *pgxpool.Pool) error {
			tx, _ := idempgx.Tx(ctx)
			_, err := tx.Exec(ctx, insert, rand.Text())
			return err
		}},
		"joined, a batch, a copy and a savepoint": {joined, func(ctx context.Context, pool *pgxpool.Pool) error {
			tx, _ := idempgx.Tx(ctx)
			var n int
			if err := pool.QueryRow(ctx, "SELECT count(*) FROM parcels").Scan(&n); err != nil {
				return err
			}
			b := &pgx.Batch{}
			b.Queue(insert, rand.Text())
			b.Queue(insert, rand.Text())
			if err := tx.SendBatch(ctx, b).Close(); err != nil {
				return err
			}
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"parcels"}, []string{"id"}, pgx.CopyFromRows([][]any{{rand.Text()}}))
			if err != nil {
				return err
			}
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, insert, rand.Text())
				return err
			})
		}},
		"leases": {leases, func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, insert, rand.Text())
			return err
		}},
	} {
		for _, mode := range modes {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				suite(t, mode, right.options, right.create).Run(t)
			})
		}
	}
}
