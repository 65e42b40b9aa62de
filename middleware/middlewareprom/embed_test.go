package middlewareprom_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareprom"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// shared is a store of keys that others change too.
type shared struct{ issuing.Store }

// swept is a store as idemsql has it.
type swept struct{ idem.Store }

func (swept) Swept() time.Time { return time.Time{} }

// targetLabels are names that people and service discovery give to targets.
// Prometheus renames a label of ours that has one of them, and no rule finds it.
var targetLabels = strings.Fields("app application az cluster component container datacenter dc endpoint env " +
	"environment group host hostname image instance job name namespace node owner pod region release replica role " +
	"service shard stage state team tier type version zone")

// Every series that an alert or a panel asks for exists, and every series is in
// a panel. None has a label that targets have.
func TestSeriesExist(t *testing.T) {
	known := make(map[string]bool)
	for _, store := range []idem.Store{&idem.Memory{}, swept{&idem.Memory{}}} {
		metrics, registry := newMetrics(t, middlewareprom.Options{
			Keys:     keystore.NewCached(shared{issuing.NewMemory()}, keystore.CacheOptions{}),
			Replies:  idem.NewRunner(store, idem.Options{}),
			Counters: ratelimit.NewFailover(&ratelimit.Memory{}, ratelimit.FailoverOptions{}),

			RequestDuration: true, StoreDuration: true,
		})
		metrics.Observe(t.Context(), middleware.Event{Policy: "organization"})
		for _, f := range must(registry.Gather())(t) {
			known[f.GetName()] = true
			for _, l := range f.Metric[0].Label {
				if slices.Contains(targetLabels, l.GetName()) {
					t.Errorf("%s has the label %s, as many targets have", f.GetName(), l.GetName())
				}
			}
		}
	}
	asked := make(map[string]bool)
	series := regexp.MustCompile(`sallyport_[a-z_]+`)
	for _, text := range [][]byte{middlewareprom.Alerts, middlewareprom.Dashboard} {
		for _, name := range series.FindAllString(string(text), -1) {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			if asked[name] = true; !known[name] && name != "sallyport_environment" { // a label
				t.Errorf("there is no series %s", name)
			}
		}
	}
	for name := range known {
		if !asked[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr string }
			FieldConfig struct{ Defaults struct{ Unit string } }
		}
	}
	if err := json.Unmarshal(middlewareprom.Dashboard, &dashboard); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for i, p := range dashboard.Panels {
		if p.ID != i+1 || (len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "") != (p.Type == "row") {
			t.Errorf("panel %d: id %d, %q, %d targets", i, p.ID, p.Title, len(p.Targets))
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
		for _, target := range p.Targets {
			if strings.Count(target.Expr, "sallyport_") != strings.Count(target.Expr, `{job=~"$job",instance=~"$instance"`) {
				t.Errorf("%s: %s asks for every job", p.Title, target.Expr)
			}
		}
	}
	if got := strings.Join(rows, ", "); got != "Now, What users feel, Limits, Creates, Keys, Stores" {
		t.Errorf("the rows are %s", got)
	}
}

// What to do when an alert fires is in the guide, where the alert says.
func TestAlertsInTheGuide(t *testing.T) {
	guide := must(os.ReadFile("../../.github/OPERATING.md"))(t)
	alerts := regexp.MustCompile(`(?m)alert: (\w+)$`).FindAllStringSubmatch(string(middlewareprom.Alerts), -1)
	timing := must(os.ReadFile("testdata/alerts_test.yaml"))(t)
	if len(alerts) == 0 {
		t.Fatal("there are no alerts")
	}
	headings := make(map[string]bool)
	for _, h := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(guide), -1) {
		headings[strings.ReplaceAll(strings.ToLower(h[1]), " ", "-")] = true
	}
	books := regexp.MustCompile(`runbook_url: (\S+/blob/main/\.github/OPERATING\.md)#(\S+)`).FindAllStringSubmatch(
		string(middlewareprom.Alerts), -1)
	if len(books) != len(alerts) {
		t.Errorf("of %d alerts %d say where the guide is", len(alerts), len(books))
	}
	for _, book := range books {
		if !headings[book[2]] {
			t.Errorf("the guide has no section #%s", book[2])
		}
	}
	for _, alert := range alerts {
		if !strings.Contains(string(guide), "`"+alert[1]+"`") {
			t.Errorf("the guide does not say what to do about %s", alert[1])
		}
		if !strings.Contains(string(timing), "alertname: "+alert[1]+"\n        exp_alerts:") {
			t.Errorf("no test says when %s fires", alert[1])
		}
	}
}
