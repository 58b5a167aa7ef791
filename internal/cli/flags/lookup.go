package flags

import (
	"strings"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
)

// LookupRow returns the row of a mechanism or of a mixer with its own projections. It
// returns an error for an unknown name.
func LookupRow(name string) (mechanism.Row, error) {
	if row, owns := nn.LookupMixer(name); owns {
		return row.Row, nil
	}
	return mechanism.Lookup(name)
}

// LookupFunction returns the row of a mechanism of queries, keys and values. It returns an error
// for an unknown name, and for a mixer.
func LookupFunction(name string) (mechanism.Row, error) {
	row, err := mechanism.Lookup(name)
	if err == nil {
		return row, nil
	}
	if owns := nn.NotAFunction(name); owns != nil {
		err = owns
	}
	return mechanism.Row{}, err
}

// JoinNames joins the names of the elements of list for a help text.
func JoinNames[T any](list []T, name func(T) string) string {
	var all []string
	for _, x := range list {
		all = append(all, name(x))
	}
	return strings.Join(all, ", ")
}
