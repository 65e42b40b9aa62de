package middlewaretest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewaretest"
	"github.com/sallyport-go/sallyport/scope"
)

var scopes = scope.New(scope.Definition{Name: "parcels:write", Meaning: "Send parcels."})

// createParcel is a handler as it is registered with an API.
func createParcel(w http.ResponseWriter, r *http.Request) {
	caller := middleware.CallerFrom(r.Context())
	if r.ContentLength == 0 {
		middleware.ExecutionFrom(r.Context()).Free() // the client may send the key again
		middleware.WriteProblem(w, r, middleware.Problem{Status: 400, Code: "parcel_missing", Detail: "The body is empty."})
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "a parcel of ", caller.Organization())
}

// The test of a handler: a caller without a key, and a claim without a store.
func Example() {
	for _, body := range []string{`{"to":"Lisbon"}`, ""} {
		r := httptest.NewRequest("POST", "/v2/parcels", strings.NewReader(body))
		r, freed := middlewaretest.Keyed(r, 1)
		w := httptest.NewRecorder()
		createParcel(w, middlewaretest.As(r, scopes, "org_1", "parcels:write"))
		fmt.Println(w.Code, w.Body, freed())
	}
	// Output:
	// 201 a parcel of org_1 false
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"The body is empty.","code":"parcel_missing"}
	//  true
}
