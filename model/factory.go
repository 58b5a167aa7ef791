package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
)

// Factory builds a mechanism of your own for each layer of attention that uses it. NewFactory
// returns one.
type Factory struct {
	build func(o mechanism.Options) (attention.Mechanism, error) // returns the mechanism of a layer
}

// NewFactory returns a factory that calls build for each layer. build gets the order and settings
// of the configuration and the sizes of the layer, and returns a new mechanism, or an error if it
// refuses them, which the model prints after the name of the mechanism.
// Parameters and constants of the mechanism become part of Model.Params and Model.Constants, with
// names that begin with the name of the layer. Save writes them, LoadWith reads them.
func NewFactory(build func(o mechanism.Options) (attention.Mechanism, error)) Factory {
	return Factory{build}
}

// IsZero reports whether f is no result of NewFactory.
func (f Factory) IsZero() bool { return f.build == nil }

// newMechanism returns the mechanism named name with options o: a row of package mechanism, or one
// of the factories of c.
func newMechanism(c *Config, name string, o mechanism.Options) (attention.Mechanism, error) {
	f, own := c.Factories[name]
	if !own {
		if _, err := lookupMechanism(*c, name); err != nil {
			return nil, err
		}
		return mechanism.New(name, o)
	}
	if f.build == nil {
		return nil, errNoFactory(name)
	}
	m, err := f.build(o)
	if err != nil {
		return nil, fmt.Errorf("mechanism: %s: %w", name, err)
	}
	if m == nil {
		return nil, fmt.Errorf("mechanism: %s: its factory returned no mechanism", name)
	}
	return m, nil
}

func errNoFactory(name string) error {
	return fmt.Errorf("factories: %s has no function that builds it; set it to a result of NewFactory", name)
}

// lookupMechanism returns the row of the mechanism named name. For a factory of c, the row has only a
// name.
func lookupMechanism(c Config, name string) (mechanism.Row, error) {
	if _, own := c.Factories[name]; own {
		return mechanism.Row{Name: name}, nil
	}
	row, err := mechanism.Lookup(name)
	if err != nil && len(c.Factories) > 0 {
		err = fmt.Errorf("%w; of your own: %s", err, strings.Join(slices.Sorted(maps.Keys(c.Factories)), ", "))
	}
	return row, err
}

// hasUnknownMechanism reports whether c names a mechanism that is neither farfield's nor a factory's.
func (c *Config) hasUnknownMechanism() bool {
	names := []string{c.Mechanism}
	for _, x := range c.LayerMechanisms {
		names = append(names, x.Mechanism)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		_, err := lookupMechanism(*c, name)
		_, owns := nn.LookupMixer(name)
		return name != "" && err != nil && !owns
	})
}

// checkFactories returns an error if a factory is empty or has the name of another mechanism.
func (c validation) checkFactories() error {
	for _, name := range slices.Sorted(maps.Keys(c.Factories)) {
		_, err := mechanism.Lookup(name)
		_, owns := nn.LookupMixer(name)
		if c.Factories[name].build == nil {
			return errNoFactory(name)
		}
		if err == nil || owns {
			return fmt.Errorf("factories: %s is the name of a mechanism of farfield; choose another name", name)
		}
	}
	return nil
}
