package kitservers

import (
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/contracttest"
	"github.com/sallyport-go/sallyport/scope"
)

// TestSallyport holds our own API to everything that the kit knows: also to
// readings, advice and what HTTP servers answer by themselves.
func TestSallyport(t *testing.T) {
	t.Parallel()
	keys := issuing.NewMemory()
	options := middleware.Options{
		RateLimit: middleware.PerOrganization("100-S"),
		Idempotency: middleware.IdempotencyOptions{
			Runner: idem.NewRunner(&idem.Memory{}, idem.Options{}),
		},
	}
	api := middleware.NewAPI(keys, options)
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead),
		func(w http.ResponseWriter, r *http.Request) {
			caller := middleware.CallerFrom(r.Context())
			writeJSON(w, http.StatusOK, map[string]string{"organization": caller.Organization()})
		})
	tasks := &family{path: "/api/v1/tasks"}
	tasks.register(api, scope.TasksRead, scope.TasksWrite)
	deliverables := &family{path: "/api/v1/deliverables"}
	deliverables.register(api, scope.DeliverablesRead, scope.DeliverablesWrite)
	to := contracttest.Target{
		Handler: api, Keys: issueAll(t, keys), Creates: []contracttest.Create{tasks.create(), deliverables.create()},
		Timeout: target().Timeout, Advice: true, Wire: true,
		Listen: func(srv *http.Server, ln net.Listener) net.Listener {
			return middleware.RequestIDListener(srv, ln, options)
		},
	}
	contracttest.Run(t, to)
}

// TestProfiles has contractcheck say of our own API with the options of each
// protocol, and without them, whether it keeps the protocol's profile.
func TestProfiles(t *testing.T) {
	check := filepath.Join(t.TempDir(), "contractcheck")
	const source = "github.com/sallyport-go/sallyport/middleware/contracttest/cmd/contractcheck"
	if out, err := exec.Command("go", "build", "-o", check, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kept := map[string]middleware.IdempotencyOptions{
		"acp":     {Required: true, JSONByValue: true, EchoKey: true, Partition: byPath},
		"ucp":     {MismatchStatus: http.StatusConflict, Partition: byPath},
		"iceberg": {Methods: []string{"POST", "DELETE"}, FreeOn: []int{500, 502, 503, 504}},
	}
	for name, options := range kept {
		for broken, o := range map[bool]middleware.IdempotencyOptions{false: options, true: {Required: name == "iceberg"}} {
			keys := issuing.NewMemory()
			api := middleware.NewAPI(keys, middleware.Options{Idempotency: o})
			tasks := &family{path: "/api/v1/tasks"}
			tasks.register(api, scope.TasksRead, scope.TasksWrite)
			srv := httptest.NewServer(api)
			defer srv.Close()
			cmd := exec.Command(check, "-url", srv.URL, "-keys", "-", "-profile", name, "-run", "^profile/", "-read", tasks.path,
				"-create", tasks.path, "-body", tasks.create().Body, "-list", tasks.path, "-without", "rate-limit")
			cmd.Stdin = strings.NewReader(`{"keys":{"full":"` + issueAll(t, keys).Full + `"}}`)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); (code == 1) != broken || (code == 0) == broken {
				t.Errorf("%s, without its options %t: contractcheck ended with %d\n%s", name, broken, code, out)
			}
		}
	}
}

func byPath(r *http.Request) string { return r.URL.Path }

// issueAll returns a key of each kind that the kit asks for.
func issueAll(t *testing.T, store issuing.Store) contracttest.Keys {
	t.Helper()
	issuer := issuing.New(store, issuing.Options{})
	issue := func(organization string, environment keystore.Environment, scopes ...scope.Name) (string, string) {
		secret, key, err := issuer.Issue(t.Context(),
			keystore.Key{Organization: organization, Environment: environment, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Reveal(), key.ID
	}
	reads := []scope.Name{scope.AccountRead, scope.TasksRead, scope.DeliverablesRead}
	writes := []scope.Name{scope.TasksWrite, scope.DeliverablesWrite}
	all := append(reads, writes...)
	var k contracttest.Keys
	k.Full, _ = issue("org_1", keystore.Production, all...)
	k.None, _ = issue("org_1", keystore.Production)
	k.Worker, _ = issue("org_1", keystore.Production, scope.ChatRead, scope.ChatWrite)
	k.Reader, _ = issue("org_1", keystore.Production, reads...)
	k.Writer, _ = issue("org_1", keystore.Production, writes...)
	k.Second, _ = issue("org_1", keystore.Production, all...)
	k.Sandbox, _ = issue("org_1", keystore.Sandbox, all...)
	k.SandboxNone, _ = issue("org_1", keystore.Sandbox)
	k.Other, _ = issue("org_2", keystore.Production, all...)
	var id string
	k.Revoked, id = issue("org_1", keystore.Production, all...)
	if _, err := issuer.Revoke(t.Context(), "org_1", id); err != nil {
		t.Fatal(err)
	}
	return k
}

// A family is resources of one kind, kept apart by tenant.
type family struct {
	path string
	mu   sync.Mutex
	made map[string][]task
}

func (f *family) create() contracttest.Create {
	return contracttest.Create{Path: f.path, Body: `{"title":"{{random}}"}`, List: f.path}
}

func (f *family) register(api *middleware.API, read, write scope.Name) {
	f.made = make(map[string][]task)
	api.HandleFunc("POST "+f.path, middleware.Require(write), func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Title string }
		if json.NewDecoder(r.Body).Decode(&in) != nil || in.Title == "" {
			middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusBadRequest, Code: "bad_request"})
			return
		}
		made := task{ID: rand.Text(), Title: in.Title}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.made[tenant(r)] = append([]task{made}, f.made[tenant(r)]...)
		w.Header().Set("Location", f.path+"/"+made.ID)
		writeJSON(w, http.StatusCreated, made)
	})
	api.HandleFunc("GET "+f.path, middleware.Require(read), func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		writeJSON(w, http.StatusOK, f.made[tenant(r)])
	})
	api.HandleFunc("GET "+f.path+"/{id}", middleware.Require(read), func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, one := range f.made[tenant(r)] {
			if one.ID == r.PathValue("id") {
				writeJSON(w, http.StatusOK, one)
				return
			}
		}
		middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusNotFound, Code: "not_found"})
	})
}

func tenant(r *http.Request) string {
	return middleware.CallerFrom(r.Context()).Tenant()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
