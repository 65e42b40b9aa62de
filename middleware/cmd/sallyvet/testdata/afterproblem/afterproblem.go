package afterproblem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/sallyport-go/sallyport/middleware"
)

var bad = middleware.Problem{Status: 400, Code: "bad_request"}

func wrong(w http.ResponseWriter, r *http.Request) {
	var in struct{ To string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		middleware.WriteProblem(w, r, bad)
	}
	found, err := find(in.To)
	if err != nil {
		fail(w, r, err) // want `this writes to a response that has the problem of line 17 already: return after WriteProblem`
		return
	}
	if !found {
		middleware.WriteProblem(w, r, bad) // want `problem of line 17`
	}
	w.WriteHeader(201)                                    // want `problem of line 17`
	_, _ = w.Write([]byte("made"))                        // want `problem of line 17`
	fmt.Fprintln(w, "made")                               // want `problem of line 17`
	if err := json.NewEncoder(w).Encode(in); err != nil { // want `problem of line 17`
		return
	}
	respond(w, 201) // want `problem of line 17`
}

func wrongAround(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range r.Header["X-Name"] {
			switch name {
			case "":
				fail(w, r, errors.New("empty")) // want `problem of line 41`
			}
		}
		next.ServeHTTP(w, r) // want `problem of line 41`
	})
}

func right(w http.ResponseWriter, r *http.Request) {
	if r.Method == "PUT" {
		middleware.WriteProblem(w, r, bad)
		return
	}
	err := check(r)
	if err != nil {
		middleware.WriteProblem(w, r, bad)
	}
	if err == nil {
		w.WriteHeader(204)
	}
}

func rightFlags(w http.ResponseWriter, r *http.Request, names []string) {
	failed, problems := false, 0
	for _, name := range names {
		if name == "" {
			middleware.WriteProblem(w, r, bad)
			failed = true
			problems++
			break
		}
	}
	if failed || problems > 0 {
		return
	}
	w.WriteHeader(204)
}

func rightElse(w http.ResponseWriter, r *http.Request) {
	if check(r) != nil {
		middleware.WriteProblem(w, r, bad)
	} else {
		w.WriteHeader(204)
	}
	switch r.Method {
	case "GET":
		middleware.WriteProblem(w, r, bad)
		panic(http.ErrAbortHandler)
	case "POST":
		respond(w, 204)
	}
	defer w.Write(nil)
	if refused(w, r) {
		return
	}
	w.WriteHeader(204)
}

func refused(w http.ResponseWriter, r *http.Request) bool {
	if check(r) == nil {
		return false
	}
	middleware.WriteProblem(w, r, bad)
	return true
}

func fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, http.ErrHandlerTimeout) {
		w.Header().Set("Retry-After", "1")
	}
	middleware.WriteProblem(w, r, bad)
}

func respond(w http.ResponseWriter, status int) { w.WriteHeader(status) }

func find(string) (bool, error) { return false, nil }

func check(*http.Request) error { return nil }

type counter struct{ wrong int }

// A field that is set says nothing of the other things that a handler is given.
func (c *counter) wrongBesideFields(w http.ResponseWriter, r *http.Request) {
	if len(bad.Code) > 0 {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		if err := check(r); err != nil {
			middleware.WriteProblem(w, r, bad)
			c.wrong++
		}
		if r.FormValue("from") != "" {
			w.WriteHeader(201) // want `problem of line 126`
		}
	}
	if err := c.save(); err == nil {
		w.WriteHeader(204) // want `problem of line 126`
	}
}

func (c *counter) save() error { return nil }
