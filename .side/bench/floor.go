package bench

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/rs/xid"
)

// floorKey is what the floor finds for a token: a caller and its limit.
type floorKey struct {
	organization string
	arrival      atomic.Int64 // theoretical arrival time of GCRA, in nanoseconds
}

type floorContext struct {
	context.Context
	key  *floorKey
	id   string
	text [20]byte
	head [1]string
}

type floorContextKey struct{}

func (c *floorContext) Value(key any) any {
	if key == (floorContextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// newFloor is the physical limit of such a server: the mux and the handler, and
// only what nobody can leave out. It makes an xid and sets its header, hashes
// the token, reads one map, does one compare-and-swap for the limit, and copies
// the request once, to hand on who calls. It refuses without a body, and replays
// nothing.
func newFloor(s *Setup) Server {
	a := application{s}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/tasks", a.list)
	mux.HandleFunc("POST /api/v1/tasks", a.post)
	keys := make(map[[32]byte]*floorKey, len(s.Tokens))
	for _, token := range s.Tokens {
		digest := sha256.Sum256([]byte(token))
		keys[digest] = &floorKey{organization: s.hand.keys[digest].org}
	}
	interval := int64(s.Period) / int64(s.Limit)
	began := time.Now()
	return netHTTP{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &floorContext{Context: r.Context()}
		text := xid.New().Encode(c.text[:])
		c.id = unsafe.String(&text[0], len(text))
		c.head[0] = c.id
		w.Header()["Svc-Request-Id"] = c.head[:]
		values := r.Header["Authorization"]
		if len(values) != 1 || len(values[0]) < len("Bearer ") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		token := values[0][len("Bearer "):]
		c.key = keys[sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token)))]
		if c.key == nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		now := int64(time.Since(began))
		for {
			old := c.key.arrival.Load()
			next := max(old, now) + interval
			if next > now+int64(s.Period) {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			if c.key.arrival.CompareAndSwap(old, next) {
				break
			}
		}
		mux.ServeHTTP(w, r.WithContext(c))
	})}
}
