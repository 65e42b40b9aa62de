// Desk serves the console of an organization that has worked with its keys for
// two years, for check.mjs and for pictures: 31 keys with uses, in memory,
// and below /settings/keys and /dashboard that of a guest. It asks for
// no sign-in.
//
//	go run ./.ci/console/desk [-addr HOST:PORT]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

const (
	organization = "Harbour Freight & Storage"
	day          = 24 * time.Hour
	keyID        = "key_d1b%017d" // with the number of the row
	folds        = 8              // the number of the row that has children
)

// A row is a key as the desk begins with it. Times are days before now.
type row struct {
	name        string
	environment keystore.Environment
	scopes      []scope.Name
	age, used   float64 // used: negative: never
	ends        float64 // days from now; zero: never
	state       string
	daily       int64 // requests on a usual day
}

var (
	live, test = keystore.Production, keystore.Sandbox

	reads  = []scope.Name{scope.AccountRead, scope.TasksRead}
	writes = []scope.Name{scope.TasksRead, scope.TasksWrite, scope.AccountRead}
)

var rows = []row{
	{"Nightly import, Frankfurt", live, writes, 412, .0021, 0, "", 18400},
	{"Checkout", live, reads, 388, .0004, 214, "", 91200},
	{"Label printer, dock 4", live, scope.ExternalWorker(), 301, .2, 0, "", 740},
	{"Label printer, dock 5", live, scope.ExternalWorker(), 301, 121, 0, "", 0},
	{"Data warehouse export", live, all(), 287, .04, 12.4, "", 2300},
	{"Zapier", live, writes, 264, 96, 0, "", 0},
	{"Grafana", live, reads, 230, .0008, 0, "", 5760},
	{"Mobile backend", live, writes, 201, .0002, 120, "", 44100},
	{"Partner: Nordlicht Logistik GmbH, returns and customs declarations for the whole of Scandinavia", live, writes, 190,
		1.3, 5.2, "", 160},
	{"Sandbox of the integration team", test, all(), 176, .9, 0, "", 90},
	{"CI", test, writes, 170, .011, 0, "", 1210},
	{"Load test", test, writes, 151, 34, 3.6, "", 0},
	{"Invoices to DATEV", live, reads, 149, 2.2, 300, "replaced", 31},
	{"Customer portal", live, all(), 140, .0011, 0, "", 12900},
	{"Old intranet", live, reads, 133, 40, 0, "suspended", 0},
	{"Backoffice", live, all(), 120, .03, 245, "", 830},
	{"Slack bot", live, scope.ExternalWorker(), 96, .5, 0, "", 52},
	{"Metabase", live, reads, 88, .12, 90, "", 410},
	{"Tobias, local", test, writes, 61, 8, 29, "", 4},
	{"Marta, local", test, writes, 58, 1.8, 32, "", 12},
	{"Route planner", live, writes, 47, .002, 318, "", 6600},
	{"Weighbridge", live, scope.ExternalWorker(), 33, .07, 0, "", 288},
	{"Pilot with Baltic Shipping", live, reads, 21, -1, 69, "", 0},
	{"Terraform", live, writes, 9, -1, 356, "", 0},
	{"Invoices to DATEV", live, reads, 2, .04, 88, "successor", 30},
	{"Nightly import, Frankfurt", live, writes, 800, 413, 0, "revoked", 0},
	{"Pilot 2024", live, reads, 640, 500, -410, "", 0},
	{"Checkout", live, reads, 760, 389, 0, "revoked", 0},
	{"Freelancer", test, writes, 520, 480, -430, "", 0},
	{"Hackathon", test, all(), 466, 465, 0, "revoked", 0},
}

func all() (names []scope.Name) {
	for _, d := range scope.Default().Definitions() {
		names = append(names, d.Name)
	}
	return names
}

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	store := issuing.NewMemory()
	issuer := issuing.New(store, issuing.Options{})
	ctx := context.Background()
	for i, r := range rows {
		fill(ctx, store, issuer, i, r)
	}
	for _, run := range []string{"Run 1, returns of Monday", "Run 2", "Run 3"} {
		_, _, err := issuer.Delegate(ctx, keystore.Key{Organization: organization, Parent: fmt.Sprintf(keyID, folds),
			Name: run, Scopes: reads, ExpiresAt: time.Now().Add(time.Hour)})
		must(err)
	}
	must(store.AddUses(ctx, []keystore.Use{{Organization: organization, ID: fmt.Sprintf(keyID, 0), At: time.Now(),
		Refused: keystore.Refusal{At: time.Now().Add(-2 * time.Hour), Code: "insufficient_scope",
			Route: "DELETE /api/v1/workspaces/{workspace}/deliverables/{deliverable}/attachments/{attachment}"}}}))
	handler := console.New(issuer, func(*http.Request) (console.Actor, error) {
		return console.Actor{ID: "user_ada", Organization: organization, Name: "Ada Quay"}, nil
	}, console.Options{
		Networks:   true,
		Attributes: []console.Attribute{{Name: "team", Title: "Team", Values: []string{"Platform", "Logistics"}}},
		PersonName: func(_ context.Context, _, id string) string {
			return map[string]string{"user_bo": "Bo Winter", "user_cy": "Cy Moor"}[id]
		},
		Limits: func(_ context.Context, k *keystore.Key) []string {
			return []string{"100 requests a second", "500,000 requests a day"}
		},
	})
	l, err := net.Listen("tcp", *addr)
	must(err)
	mux := http.NewServeMux()
	guest(mux)
	mux.Handle("/keys/", http.StripPrefix("/keys", handler))
	mux.HandleFunc("POST /use/{id}", func(_ http.ResponseWriter, r *http.Request) { // a request with the key, now
		use(r.Context(), store, r.PathValue("id"), time.Now(), 1)
	})
	fmt.Printf("Console at http://%s/keys/\n", l.Addr())
	log.Fatal(http.Serve(l, mux))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// fill stores the key of a row with the uses of 110 days.
func fill(ctx context.Context, store issuing.Store, issuer *issuing.Issuer, i int, r row) {
	now := time.Now()
	ago := func(days float64) time.Time { return now.Add(-time.Duration(days * float64(day))) }
	secret := issuer.Service().Generate(r.environment).Reveal()
	k := &keystore.Key{
		ID: fmt.Sprintf(keyID, i), Digest: keystore.DigestOf(secret), Organization: organization,
		Environment: r.environment, Name: r.name, Hint: secret[len(secret)-4:], Scopes: r.scopes, CreatedAt: ago(r.age),
		CreatedBy: []string{"user_ada", "user_bo", "user_cy"}[i%3],
	}
	if r.ends != 0 {
		k.ExpiresAt = ago(-r.ends)
	}
	if i%4 == 0 {
		k.Attributes = map[string]string{"team": "Logistics"}
		k.Networks = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("2001:db8:40::/48")}
	}
	switch r.state {
	case "suspended":
		k.Suspended = true
	case "revoked":
		k.RevokedAt = ago(r.used - 1)
	case "replaced":
		k.RevokedAt = ago(-5)
	case "successor":
		k.RotatedFrom = fmt.Sprintf(keyID, 12)
	}
	must(store.Insert(ctx, k, issuing.AuditEntry{ID: fmt.Sprintf("act_%014x%02d", k.CreatedAt.UnixMicro(), i),
		At: k.CreatedAt, Act: "issue", Actor: k.CreatedBy, Organization: organization, Key: k.ID}, 0))
	for d := min(110, r.age); d > r.used && r.daily > 0; d-- {
		requests := r.daily * int64(7+int(d*37)%9) / 10
		if ago(d).Weekday() == time.Sunday {
			requests /= 4
		}
		use(ctx, store, k.ID, ago(d), requests, r.scopes[:2]...)
	}
	if r.used >= 0 {
		use(ctx, store, k.ID, ago(r.used), r.daily/3)
	}
}

// use records requests with a key, which need scopes.
func use(ctx context.Context, store issuing.Store, id string, at time.Time, requests int64, scopes ...scope.Name) {
	must(store.AddUses(ctx, []keystore.Use{{Organization: organization, ID: id, At: at, Requests: requests,
		Scopes: scopes, From: netip.MustParseAddr("10.2.0.7")}}))
}
