package flags

import (
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/nn"
)

// Opening holds the flags that say how a trained model is opened.
type Opening struct {
	Exchange
	IgnoreField []string `sep:"none" placeholder:"NAME" help:"Pass over a field of config.json that is unknown here and does not change the function (repeatable)."`
	Precision
}

// Precision is the flag that says how weights are held.
type Precision struct {
	Precision string `enum:"f32,bf16,int8" default:"f32" help:"How weights are held: ${enum}. Fewer bits take less memory and time, and change the results a little."`
}

// Chosen returns the options that the flags ask for. It returns an error where Request does.
func (o *Opening) Chosen() (options inference.Options, err error) {
	if options.Exchange, err = o.Request(); err != nil {
		return options, err
	}
	options.IgnoreFields = o.IgnoreField
	options.Precision, err = o.Precision.Parsed()
	return options, err
}

// Parsed returns the precision. It returns an error if there is none with this name.
func (p Precision) Parsed() (nn.Precision, error) {
	if p.Precision == "" { // of a command that was not parsed
		return nn.Float32, nil
	}
	return nn.ParsePrecision(p.Precision)
}

// Shown returns the name of the precision, or "" for f32, as records have it.
func (p Precision) Shown() string {
	if p.Precision == nn.Float32.String() {
		return ""
	}
	return p.Precision
}

// Bind is Exchange.Bind with the precision and the fields that are ignored.
func (o *Opening) Bind(bind func(name, value string)) {
	o.Exchange.Bind(bind)
	if p := o.Shown(); p != "" {
		bind("--precision", p)
	}
	if len(o.IgnoreField) > 0 {
		bind("--ignore-field", strings.Join(slices.Sorted(slices.Values(o.IgnoreField)), ","))
	}
}
