-- Each request is a POST with a key of its own. The first thread is the only
-- one, and a run does not repeat the keys of an earlier one.
wrk.method = "POST"
wrk.body = '{"title":"Call the bank"}'
wrk.headers["Content-Type"] = "application/json"

local prefix, n = "", 0

function init(args)
	prefix = args[1] .. "-"
end

function request()
	n = n + 1
	wrk.headers["Idempotency-Key"] = prefix .. n
	return wrk.format()
end
