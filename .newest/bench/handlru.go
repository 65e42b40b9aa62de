package bench

import (
	"container/list"
	"context"
	"crypto/sha256"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/xid"
	"github.com/sethvargo/go-limiter/memorystore"
)

// lruReplies is the smallest idempotency that keeps its word while nothing goes
// wrong: a mutex, a map and an LRU of a million answers. A handler ends with its
// client, one that panics may run again, and the bound counts answers, not bytes.
type lruReplies struct {
	mu    sync.Mutex
	known map[replyName]*lruReply
	order list.List // answered ones, the latest used first
}

type replyName struct{ org, key string }

type lruReply struct {
	held
	name    replyName
	request [32]byte
	done    chan struct{} // closed when it is answered or forgotten
	at      time.Time
	place   *list.Element
}

const mostReplies, retention = 1 << 20, 24 * time.Hour

// claim returns the reply of a name, and whether the caller is to make it.
func (s *lruReplies) claim(name replyName, request [32]byte) (p *lruReply, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p = s.known[name]; p != nil && (p.place == nil || time.Since(p.at) < retention) {
		if p.place != nil {
			s.order.MoveToFront(p.place)
		}
		return p, false
	}
	if p != nil {
		s.order.Remove(p.place)
	}
	p = &lruReply{name: name, request: request, done: make(chan struct{})}
	p.header = make(http.Header)
	s.known[name] = p
	return p, true
}

func (s *lruReplies) settle(p *lruReply, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(p.done)
	if !answered {
		delete(s.known, p.name)
		return
	}
	p.at, p.place = time.Now(), s.order.PushFront(p)
	if s.order.Len() > mostReplies {
		delete(s.known, s.order.Remove(s.order.Back()).(*lruReply).name)
	}
}

func (s *lruReplies) handler(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := replyName{identityOf(r).org, r.Header.Get("Idempotency-Key")}
		if name.key == "" {
			next(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		request := sha256.Sum256(append([]byte(r.Method+"\x00"+r.URL.RequestURI()+"\x00"), body...))
		p, fresh := s.claim(name, request)
		switch {
		case fresh:
			answered := false
			defer func() { s.settle(p, answered) }()
			next(&p.held, r)
			p.WriteHeader(http.StatusOK)
			answered = true
		case p.request != request:
			http.Error(w, "the key was used for another request", http.StatusUnprocessableEntity)
			return
		default:
			select {
			case <-p.done:
			case <-r.Context().Done():
				return
			}
			if p.place == nil {
				http.Error(w, "the first request failed", http.StatusConflict)
				return
			}
			w.Header().Set("Idempotent-Replayed", "true")
		}
		maps.Copy(w.Header(), p.header)
		w.WriteHeader(p.status)
		w.Write(p.body.Bytes())
	}
}

// newLRU is lruReplies behind the least that a team writes for the rest.
func newLRU(s *Setup) Server {
	a := application{s}
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.Limit), Interval: s.Period})
	must(err)
	limit := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, _, reset, ok, err := store.Take(context.Background(), identityOf(r).org); err != nil || !ok {
				w.Header().Set("Retry-After", strconv.Itoa(int(time.Until(time.Unix(0, int64(reset))).Seconds())+1))
				http.Error(w, "too many requests", http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	replies := &lruReplies{known: make(map[replyName]*lruReply)}
	m := a.routes(replies.handler(a.post))
	guarded := recovered(bearer(s.hand.find)(limit(m)))
	return netHTTP{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", xid.New().String())
		guarded.ServeHTTP(w, r)
	})}
}
