package metrics

import (
	"os/exec"
	"testing"
)

func TestAlertRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool: install Debian's prometheus")
	}
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
