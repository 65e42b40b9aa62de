package metrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// The rules see targets with the labels that many have. Job a, with trouble, is
// there in a second environment too, in which all is well as in job b: it stays
// silent, and the figures of the two are not added up.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool := servers.Program(t, "promtool", "prometheus")
	rules := absolute(t, "../../middleware/middlewareprom/alerts.yaml")
	text, err := os.ReadFile("../../middleware/middlewareprom/testdata/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const labels = `environment: staging, region: eu, namespace: shop, version: "2"`
	tests := strings.NewReplacer("../alerts.yaml", rules, "count by (job,", "count by (job, environment,",
		`labels: '{job="a",`, `labels: '{job="a", environment="staging",`,
		`'sallyport_requests_total{`, `'sallyport_requests_total{sallyport_environment="sandbox",`).Replace(string(text))
	for _, change := range [][2]string{
		{`(\{|,)job="(\w)",instance="(\w+)"`,
			`${1}environment="staging",region="eu",namespace="shop",version="2",job="$2",instance="$3",pod="$3"`},
		{`(?m)^.*series.*job="b".*$`, "${0}\nPRODUCTION${0}"},
		{`(?m)^PRODUCTION(.*)="staging"(.*)job="b"`, `$1="production"${2}job="a"`},
		{`exp_labels: (.*) job: a`, `exp_labels: $1 job: a, ` + labels},
		{`(exp_labels: .*)instance: (\w+)`, "${1}instance: $2, pod: $2"},
	} {
		tests = regexp.MustCompile(change[0]).ReplaceAllString(tests, change[1])
	}
	file := filepath.Join(t.TempDir(), "alerts_test.yaml")
	if err := os.WriteFile(file, []byte(tests), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", file}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}
