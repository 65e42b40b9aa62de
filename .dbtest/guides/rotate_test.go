package guides_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// rotateKey answers with the key that replaces the caller's. Both work for a day.
func rotateKey(issuer *issuing.Issuer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		middleware.ExecutionFrom(r.Context()).DropResponse()
		caller := middleware.CallerFrom(r.Context())
		secret, key, err := issuer.Rotate(r.Context(), issuing.Rotation{
			Organization: caller.Organization(), ID: caller.KeyID(), Overlap: 24 * time.Hour,
			IssueToken: r.Header.Get("Idempotency-Key"),
		})
		switch {
		case errors.Is(err, keystore.ErrNotFound): // a user, who has no key
			middleware.WriteProblem(w, r, middleware.Problem{Status: 403, Code: "no_key"})
		case errors.Is(err, issuing.ErrRotated):
			middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "key_rotated"})
		default:
			answerKey(w, r, secret, key, err)
		}
	}
}

// revokeKey revokes the key that it is called with.
func revokeKey(issuer *issuing.Issuer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller := middleware.CallerFrom(r.Context())
		if _, err := issuer.Revoke(r.Context(), caller.Organization(), caller.KeyID()); err != nil {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "keys_unavailable"})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// A customer rotates the key it calls with: it asks for a new one, tries it, and
// revokes the old one.
func Example_rotateOwnKey() {
	keys, issuer := issuing.InMemory(keystore.Service{})
	api := middleware.NewAPI(keys, middleware.Options{})
	api.HandleFunc("POST /api/v1/key/rotation", middleware.AnyCaller(), rotateKey(issuer))
	api.HandleFunc("DELETE /api/v1/key", middleware.AnyCaller(), revokeKey(issuer))
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), func(http.ResponseWriter, *http.Request) {})
	old := issue(issuer, "org_1", scope.TasksRead)

	rotated := send(api, "POST", "/api/v1/key/rotation", old, "", "Idempotency-Key", "1")
	var key struct{ Secret string }
	fmt.Println(rotated.Code, json.Unmarshal(rotated.Body.Bytes(), &key))
	fmt.Println("new", send(api, "GET", "/api/v1/tasks", key.Secret, "").Code)
	// The secret was in that answer alone. Until it is tried, the old key works.
	fmt.Println("again", send(api, "POST", "/api/v1/key/rotation", old, "", "Idempotency-Key", "1").Code)
	fmt.Println("another", send(api, "POST", "/api/v1/key/rotation", old, "", "Idempotency-Key", "2").Code)
	fmt.Println("old", send(api, "GET", "/api/v1/tasks", old, "").Code)
	fmt.Println("revoked", send(api, "DELETE", "/api/v1/key", old, "").Code)
	fmt.Println("old", send(api, "GET", "/api/v1/tasks", old, "").Code)
	// Output:
	// 201 <nil>
	// new 200
	// again 409
	// another 409
	// old 200
	// revoked 204
	// old 401
}
