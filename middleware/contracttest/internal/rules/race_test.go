//go:build race

package rules_test

// stride is how many defects there are to each one that is planted. Under the
// race detector every third is enough: it slows the whole list to a minute.
const stride = 3
