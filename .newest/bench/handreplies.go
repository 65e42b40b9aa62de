package bench

import (
	"bytes"
	"crypto/sha256"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
)

// handReplies is the idempotency that a careful engineer writes in an
// afternoon: by organization, with a digest of the request, and repeats that
// wait.
type handReplies struct {
	mu    sync.Mutex
	known *expirable.LRU[string, *handReply]
}

type handReply struct {
	request [32]byte
	done    chan struct{}
	status  int // 0 once done means that nothing was kept
	header  http.Header
	body    []byte
}

func newHandReplies() *handReplies {
	return &handReplies{known: expirable.NewLRU[string, *handReply](1<<22, nil, 24*time.Hour)}
}

// held is the writer of a handler whose answer is to be kept.
type held struct {
	discard
	body bytes.Buffer
}

func (w *held) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (s *handReplies) handler(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			next(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h := sha256.New()
		io.WriteString(h, r.Method+"\x00"+r.URL.RequestURI()+"\x00")
		h.Write(body)
		mine := &handReply{done: make(chan struct{})}
		h.Sum(mine.request[:0])

		name := identityOf(r).org + "\x00" + key
		s.mu.Lock()
		first, repeat := s.known.Get(name)
		if !repeat {
			s.known.Add(name, mine)
		}
		s.mu.Unlock()
		if repeat {
			first.replay(w, r, mine.request)
			return
		}

		recorded := &held{discard: discard{header: make(http.Header)}}
		defer func() {
			if mine.status == 0 {
				s.known.Remove(name)
			}
			close(mine.done)
		}()
		next(recorded, r)
		recorded.WriteHeader(http.StatusOK)
		mine.status, mine.header, mine.body = recorded.status, recorded.header, recorded.body.Bytes()
		mine.send(w)
	}
}

func (p *handReply) replay(w http.ResponseWriter, r *http.Request, request [32]byte) {
	if p.request != request {
		http.Error(w, "the key was used for another request", http.StatusUnprocessableEntity)
		return
	}
	select {
	case <-p.done:
	case <-r.Context().Done():
		return
	}
	if p.status == 0 {
		http.Error(w, "the first request failed", http.StatusConflict)
		return
	}
	w.Header().Set("Idempotent-Replayed", "true")
	p.send(w)
}

func (p *handReply) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.header)
	w.WriteHeader(p.status)
	w.Write(p.body)
}
