package idempgx

var NotReached = notReached
