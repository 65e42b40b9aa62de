package idemsql_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// stillLease is long enough for a slow machine to renew it.
const stillLease = time.Second

// standStill stops this process until it is continued.
var standStill = func() {}

// renewed is closed when the process has stood still before it extends a lease.
var renewed = make(chan struct{})

var extending = sync.OnceFunc(func() {
	standStill()
	close(renewed)
})

// stepped is a store that stops the process at a step.
type stepped struct {
	idem.Store
	counter // nil where nothing counts
	still   string
}

// stepped returns the store of a child.
func (o order) stepped(s idem.Store) idem.Store {
	counts, _ := s.(counter)
	if o.Redis != "" {
		ro, err := redis.ParseURL(os.Getenv("SALLYPORT_REDIS"))
		if err != nil {
			panic(err)
		}
		s = idemredis.New(redis.NewClient(ro), idemredis.Options{Prefix: o.Redis})
	}
	if o.Mode == "joined" {
		return s
	}
	return stepped{s, counts, o.Still}
}

func (stepped) HonorsContext() {}

func (s stepped) stop(at string) {
	if s.still == at {
		standStill()
	}
}

func (s stepped) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	s.stop("begin")
	r, err := s.Store.Begin(ctx, c)
	s.stop("begun")
	return r, err
}

func (s stepped) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	if s.still == "extend" {
		extending()
	}
	return s.Store.Extend(ctx, key, token, lease)
}

func (s stepped) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, t idem.Settlement) error {
	s.stop("settle")
	err := s.Store.Settle(ctx, key, token, t)
	s.stop("settled")
	return err
}

// create writes a row, in the transaction if there is one.
func (o order) create(w http.ResponseWriter, r *http.Request, s *server) {
	title, _ := io.ReadAll(r.Body)
	stepped{still: o.Still}.stop("handler")
	q, joined := inTx(r.Context())
	if !joined {
		q = s.db
	}
	id, key := string(title)+" by "+o.Still, r.Header.Get("Idempotency-Key")
	statement := "INSERT INTO tasks (id, title, made_for) VALUES ('" + id + "', '" + string(title) + "', '" + key + "')"
	switch o.Still {
	case "sent": // the server has the statement when the process stops
		time.AfterFunc(stillLease/5, standStill)
		sleep := map[bool]string{true: "SLEEP(2)", false: "CAST(pg_sleep(2) AS text)"}[o.MariaDB != ""]
		statement = "INSERT INTO tasks (id, title, made_for) SELECT '" + id + "', CONCAT('" + string(title) +
			"', LEFT(" + sleep + ", 0)), '" + key + "'"
	case "extend":
		<-renewed
	}
	if _, err := q.ExecContext(r.Context(), statement); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	stepped{still: o.Still}.stop("written")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, strings.ToUpper(id))
}
