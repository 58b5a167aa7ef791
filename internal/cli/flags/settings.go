package flags

import (
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/mechanism"
)

// Settings are the flags for the settings of a mechanism.
type Settings struct {
	Order *int              `placeholder:"P" help:"Degree of the kernel polynomial."`
	Set   map[string]string `complete:"settings" mapsep:"none" placeholder:"KEY=VALUE" help:"A setting of the mechanism; may be repeated."`
}

// Options returns the options of the mechanism, for heads of width d and sequences of
// at most tokens tokens. It returns an error if the order is less than 1.
func (s Settings) Options(heads, d, tokens int) (mechanism.Options, error) {
	o := mechanism.Options{Heads: heads, Width: d, Length: tokens, Set: s.Set}
	if s.Order != nil {
		if o.Order = *s.Order; o.Order < 1 {
			return o, env.InputErrorf("--order: %d is less than 1", o.Order)
		}
	}
	return o, nil
}
