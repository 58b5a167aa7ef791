package flags

import (
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/mechanism"
)

// Settings holds the flags for the settings of a mechanism.
type Settings struct {
	Order *int              `placeholder:"P" help:"Degree of the kernel polynomial."`
	Set   map[string]string `complete:"settings" mapsep:"none" placeholder:"KEY=VALUE" help:"A setting of the mechanism; may be repeated."`
}

// Options returns the options for the mechanism name, with heads of width d and sequences of at
// most tokens tokens. It returns an error if the order is below 1, or below 0 if the mechanism has
// an order 0.
func (s Settings) Options(name string, heads, d, tokens int) (mechanism.Options, error) {
	o := mechanism.Options{Heads: heads, Width: d, Length: tokens, Set: s.Set}
	if s.Order == nil {
		return o, nil
	}
	o.Order = *s.Order
	return o, CheckOrder(name, o.Order)
}

// CheckOrder returns an error if an order given for the mechanism name is below 1, or below 0 if
// the mechanism has an order 0.
func CheckOrder(name string, order int) error {
	least := 1
	if row, err := mechanism.Lookup(name); err == nil && row.MaxOrder > 0 {
		least = 0
	}
	if order < least {
		return env.InputErrorf("--order: %d is less than %d", order, least)
	}
	return nil
}
