package keystoretest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// Names returns the names of all cases.
func Names() []string {
	names := []string{unavailable.name}
	for _, c := range cases() {
		names = append(names, c.name)
	}
	return names
}

// Failures runs the case with this name on m and returns what it reported.
func Failures(t testing.TB, name string, m issuing.Store) []string {
	for _, c := range append(cases(), unavailable) {
		if c.name != name {
			continue
		}
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(test{r, m})
		}()
		<-done
		return r.messages
	}
	t.Fatalf("there is no case %q", name)
	return nil
}

// A recorder is a TB that keeps what is reported instead of failing.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	messages []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
