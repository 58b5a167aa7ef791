package flags

import (
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/nn"
)

// Opening are the flags that say how a trained model is opened.
type Opening struct {
	Exchange
	Precision string `enum:"f32,bf16,int8" default:"f32" help:"How weights are held: ${enum}. Fewer bits take less memory and time, and change the results a little."`
}

// Chosen returns what the flags ask for. It returns an error where Request does.
func (o *Opening) Chosen() (options inference.Options, err error) {
	if options.Exchange, err = o.Request(); err != nil {
		return options, err
	}
	if o.Precision != "" { // of a command that was not parsed
		options.Precision, err = nn.ParsePrecision(o.Precision)
	}
	return options, err
}

// Bind is Exchange.Bind with the precision.
func (o *Opening) Bind(bind func(name, value string)) {
	o.Exchange.Bind(bind)
	if o.Precision != "" && o.Precision != nn.Float32.String() {
		bind("--precision", o.Precision)
	}
}
