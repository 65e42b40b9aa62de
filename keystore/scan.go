package keystore

import (
	"fmt"
	"strings"
)

// A ScanRule tells a secret scanner how to find keys that leaked. It says
// nothing secret.
type ScanRule struct {
	// Pattern is a regular expression, in the syntax common to RE2 and PCRE,
	// that finds keys within text. It also matches what only looks like one.
	Pattern string

	// Checksum says in words, with an example, how to tell a key from what only
	// looks like one.
	Checksum string

	// Gitleaks is a rule for the configuration of gitleaks 8, in TOML. A
	// scanner of this kind knows no checksums; the rule leaves out placeholders
	// by their low entropy.
	Gitleaks string
}

// Pattern returns a regular expression, in the syntax common to RE2 and PCRE
// and without anchors, that matches the tokens of the present shape. It does
// not know the checksum, so it also matches others.
func (s Service) Pattern() string {
	return fmt.Sprintf("%s_(%s|%s)_[0-9A-Za-z]{%d}",
		s.prefix(), s.word(Production), s.word(Sandbox), randomLength+checksumLength)
}

// ScanRule returns the rule for the keys of s, legacy ones left out.
func (s Service) ScanRule() ScanRule {
	// Scanners take the first capturing group for the secret. Here that would
	// be the word for the environment alone.
	r := ScanRule{Pattern: `\b` + strings.ReplaceAll(s.Pattern(), "(", "(?:") + `\b`}
	live, test := s.begin(Production), s.begin(Sandbox)
	body := live + strings.Repeat("0", randomLength)
	sum := checksum(body)
	r.Checksum = fmt.Sprintf("The last %d characters are the CRC-32 (IEEE 802.3, as in zlib) of all before them, "+
		"from the prefix on, written in base 62 with the digits 0-9, A-Z and a-z in this order, the most significant "+
		"first, "+
		"and zeros in front. For %s they are %s.", checksumLength, body, sum[:])
	r.Gitleaks = fmt.Sprintf(`[[rules]]
id = "%[1]s-api-key"
description = "%[1]s secret API key"
regex = '''%[2]s'''
entropy = %[3]d
keywords = [%[4]q, %[5]q]
`, s.prefix(), r.Pattern, scanEntropy, live, test)
	return r
}

// scanEntropy, in bits a character, is well below that of any key and above
// that of a prefix with one letter repeated.
const scanEntropy = 3
