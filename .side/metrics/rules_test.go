package metrics

import (
	"os/exec"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/servers"
)

func TestAlertRules(t *testing.T) {
	promtool := servers.Program(t, "promtool", "prometheus")
	folder := "../../middleware/middlewareprom/"
	for _, args := range [][]string{
		{"check", "rules", folder + "alerts.yaml"},
		{"test", "rules", folder + "testdata/alerts_test.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}
