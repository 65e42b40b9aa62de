package middlewareprom

import _ "embed"

// Alerts are rules of Prometheus on these metrics. What to do when one fires
// stands under its name in .github/OPERATING.md of the module.
//
//go:embed alerts.yaml
var Alerts []byte

// Dashboard is a dashboard of Grafana. It asks for a data source and a job.
//
//go:embed grafana.json
var Dashboard []byte
