package keystore

// WithDefaults returns the options as NewCached uses them.
func WithDefaults(o CacheOptions) CacheOptions { return o.withDefaults() }

// NewSecret returns a Secret that holds text.
func NewSecret(text string) Secret { return newSecret(text) }

// Word returns the part of a token that stands for e.
func (e Environment) Word() string { return e.word() }
