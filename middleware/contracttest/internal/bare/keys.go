package bare

// Keys for tests. Nothing accepts them elsewhere.
const (
	Full    = "svc_live_BareServerFullBareServerFullBareServerFull"
	None    = "svc_live_BareServerNoneBareServerNoneBareServerNone"
	Sandbox = "svc_test_BareServerTestBareServerTestBareServerTest"
	Other   = "svc_live_BareServerOtherBareServerOtherBareServer00"
	Revoked = "svc_live_BareServerGoneBareServerGoneBareServerGone"
)

// DemoKeys returns what these keys stand for.
func DemoKeys() map[string]Key {
	return map[string]Key{
		Full:    {Organization: "org_1", Environment: "production", Scoped: true},
		None:    {Organization: "org_1", Environment: "production"},
		Sandbox: {Organization: "org_1", Environment: "sandbox", Scoped: true},
		Other:   {Organization: "org_2", Environment: "production", Scoped: true},
		Revoked: {Organization: "org_1", Environment: "production", Scoped: true, Revoked: true},
	}
}
