package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/sallyport-go/sallyport/middleware/middlewareprom"
)

// Grafana's own types accept the dashboard: they are of the schema that Grafana
// 12 has, and refuse a field that they do not know or that is missing.
func TestDashboardSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	//lint:ignore SA1019 The newer type is of a schema that the dashboard does not have.
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(middlewareprom.Dashboard); err != nil && err.Error() != "" {
		t.Error(err)
	}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	if d.SchemaVersion != 41 || !strings.Contains(*d.Description, "Grafana 12") {
		t.Errorf("schema version %d: %s", d.SchemaVersion, *d.Description)
	}
	if image := readComposition(t).Services["grafana"].Image; !strings.HasPrefix(image, "grafana/grafana:12.") {
		t.Errorf("compose.yaml starts %s", image)
	}
}

// The picture in the guide has the panels of the dashboard.
func TestDashboardPicture(t *testing.T) {
	picture, err := os.ReadFile("../../.github/dashboard.svg")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct{ Type, Title string }
	}
	if err := json.Unmarshal(middlewareprom.Dashboard, &d); err != nil {
		t.Fatal(err)
	}
	row, drawn := "", 0
	for _, p := range d.Panels {
		if p.Type == "row" {
			row = p.Title
		}
		there := strings.Contains(string(picture), fmt.Sprintf("class='%s'>%s<", p.Type, p.Title))
		if there != strings.Contains("Now, What users feel, Stores", row) {
			t.Errorf("%s of %s is in the picture: %t", p.Title, row, there)
		}
		if there {
			drawn++
		}
	}
	if drawn != strings.Count(string(picture), "class='row'")+strings.Count(string(picture), "class='grid' x=") {
		t.Errorf("the picture has other than the %d panels and rows", drawn)
	}
}

// queries returns those of the dashboard by the titles of their panels, for all
// jobs and instances.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	var d struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(middlewareprom.Dashboard, &d); err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title],
				strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "10s").Replace(target.Expr))
		}
	}
	return all
}

// highest returns the highest value of an expression, NaN if there is none.
func (s server) highest(t *testing.T, expression string) float64 {
	t.Helper()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	s.get(t, "/api/v1/query?query="+url.QueryEscape(expression), &answer)
	if answer.Status != "success" {
		t.Fatalf("%s: %s", expression, answer.Error)
	}
	highest := math.NaN()
	for _, r := range answer.Data.Result {
		if v, err := strconv.ParseFloat(r.Value[1].(string), 64); err == nil && !math.IsNaN(v) {
			if !(v <= highest) {
				highest = v
			}
		}
	}
	return highest
}

// A board is the dashboard before a Prometheus. It notes which queries have had
// a value.
type board struct {
	server
	queries map[string][]string
	drawn   map[string]bool
}

// shows waits until a panel shows a value between least and most, and asks all
// the others meanwhile.
func (b board) shows(t *testing.T, panel string, least, most float64) {
	t.Helper()
	if len(b.queries[panel]) == 0 {
		t.Fatalf("there is no panel %q", panel)
	}
	eventually(t, panel, func() bool {
		shown := false
		for title, all := range b.queries {
			for _, q := range all {
				v := b.highest(t, q)
				b.drawn[q] = b.drawn[q] || !math.IsNaN(v)
				shown = shown || title == panel && least <= v && v <= most
			}
		}
		return shown
	})
}
