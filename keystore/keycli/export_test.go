package keycli

var Operator = operator // whom a change is by without -as
