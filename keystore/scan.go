package keystore

import (
	"fmt"
	"strings"
)

// Pattern returns a regular expression, in the syntax common to RE2 and PCRE
// and without anchors, that matches the tokens of the present format. It does
// not know the checksum, so it also matches others: see [Service] for what
// tells a key from them.
func (s Service) Pattern() string {
	return fmt.Sprintf("%s_(%s|%s)_[0-9A-Za-z]{%d}",
		s.prefix(), live, test, randomLength+checksumLength)
}

// Gitleaks returns a rule for the configuration of gitleaks 8, in TOML, that
// finds the tokens of the present format. A scanner of this kind knows no
// checksums; the rule leaves out placeholders by their low entropy.
func (s Service) Gitleaks() string {
	// Scanners take the first capturing group for the secret. Here that would
	// be the word for the environment alone.
	pattern := `\b` + strings.ReplaceAll(s.Pattern(), "(", "(?:") + `\b`
	return fmt.Sprintf(`[[rules]]
id = "%[1]s-api-key"
description = "%[1]s secret API key"
regex = '''%[2]s'''
entropy = %[3]d
keywords = [%[4]q, %[5]q]
`, s.prefix(), pattern, scanEntropy, s.begin(Production), s.begin(Sandbox))
}

// scanEntropy, in bits a character, is well below that of any key and above
// that of a prefix with one letter repeated.
const scanEntropy = 3
