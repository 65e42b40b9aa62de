package main

import (
	"database/sql"
	"encoding/json"
	"log"
	"net/http"

	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
)

const parcelTable = `CREATE TABLE IF NOT EXISTS parcels (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text NOT NULL, target text NOT NULL)`

// create writes a parcel in the transaction that also has the reply.
func create(w http.ResponseWriter, r *http.Request) {
	var parcel struct{ To string }
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&parcel)
	if err != nil || parcel.To == "" {
		middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusBadRequest, Code: "bad_request",
			Detail: `Send JSON such as {"to": "Lisbon"}.`})
		return
	}
	tx, _ := idemsql.Tx(r.Context()) // there is one: the API requires an Idempotency-Key
	caller := middleware.CallerFrom(r.Context())
	var id int64
	err = tx.QueryRowContext(r.Context(), "INSERT INTO parcels (tenant, target) VALUES ($1, $2) RETURNING id",
		caller.Tenant(), parcel.To).Scan(&id)
	if err != nil {
		fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"id": id, "to": parcel.To}) // an error: the client has left
}

// count answers with how many parcels the caller's tenant has.
func count(db *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller := middleware.CallerFrom(r.Context())
		var n int
		err := db.QueryRowContext(r.Context(), "SELECT count(*) FROM parcels WHERE tenant = $1", caller.Tenant()).Scan(&n)
		if err != nil {
			fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]int{"parcels": n})
	}
}

// fail answers with 500, which also rolls a create back and frees its key.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	log.Printf("request %s: %v", middleware.RequestIDFrom(r.Context()), err)
	middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusInternalServerError, Code: "internal"})
}
