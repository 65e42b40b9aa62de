package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

const logo = "data:image/svg+xml;base64," +
	"PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCAyNCAyNCI+PGNpcmNsZSBjeD0iMTIiIGN5PSIxMiIg" +
	"cj0iMTIiIGZpbGw9IiNlNTczMDAiLz48cGF0aCBkPSJNNiAxNWw2LTkgNiA5eiIgZmlsbD0iI2ZmZiIvPjwvc3ZnPg=="

// registry has twenty families, each with three scopes.
func registry() *scope.Registry {
	var all []scope.Definition
	for family := range strings.FieldsSeq("orders refunds carts products prices stock customers segments campaigns " +
		"coupons invoices payouts disputes shipments returns carriers reports webhooks members settings") {
		for _, d := range [][2]string{{"read", "List %s and read them."}, {"write", "Create %s and change them."},
			{"export", "Download all %s as a file."}} {
			all = append(all, scope.Definition{Name: scope.Name(family + ":" + d[0]), Meaning: fmt.Sprintf(d[1], family)})
		}
	}
	return scope.New(all...)
}

// guest shows the console as other dashboards do: with a brand of its own and 60
// scopes, behind what takes its prefix off, and in a frame.
func guest(mux *http.ServeMux) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{Service: keystore.Service{
		Scopes: registry(), Prefix: "north"}})
	ada := func(*http.Request) (console.Actor, error) {
		return console.Actor{ID: "user_ada", Organization: "Northwind Traders", Name: "Ada Quay"}, nil
	}
	o := console.Options{
		Path: "/settings/keys", Presets: []console.Preset{}, BaseURL: "https://api.northwind.example/v2/",
		Theme: console.Theme{
			Title: "Northwind", Logo: logo, Font: `Georgia, "DejaVu Serif", serif`, Radius: "3px", Compact: true,
			Light: console.Palette{Accent: "#e57300", Ground: "#fbf7f0", Ink: "#241a10"},
			Dark:  console.Palette{Ground: "#15110c", Surface: "#1d1812"},
		},
		Samples: []console.Sample{
			{Scope: "orders:read", Method: "GET", Path: "/orders?filter[state]=open&limit=5"},
			{Scope: "orders:write", Method: "POST", Path: "/orders", Body: `{"sku": "CHAI-1", "note": "Ada's"}`}},
	}
	stripped := http.StripPrefix(o.Path, console.New(issuer, ada, o))
	mux.Handle("/settings/keys", stripped)
	mux.Handle("/settings/keys/", stripped)
	o.Path, o.Theme.NoHeader, o.FrameAncestors = "/framed", true, []string{"'self'"}
	mux.Handle("/framed/", console.New(issuer, ada, o))
	mux.HandleFunc("/dashboard", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, `<!doctype html><html lang="en"><title>Dashboard</title>`+
			`<meta name="viewport" content="width=device-width"><body style="margin: 0"><h1 hidden>Dashboard</h1>`+
			`<iframe src="/framed/" title="API keys" `+
			`sandbox="allow-forms allow-same-origin allow-scripts allow-downloads" `+
			`style="width: 100%; height: 95vh; border: 0"></iframe>`)
	})
}
