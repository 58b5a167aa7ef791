package nn

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/settings"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

// mixers are the mixers that own their projections. To add one, write a file
// with its layer and its row, and list the row here and the layer in mixerMakers.
var mixers = []MixerRow{mamba2, retnet, hyena, crate}

// mixerMakers returns the function that makes each mixer.
func mixerMakers() map[string]func(*mixerArgs) (Mixer, error) {
	return map[string]func(*mixerArgs) (Mixer, error){
		mamba2.Name: newMamba2, retnet.Name: newMSR, hyena.Name: newHyena, crate.Name: newMSSA,
	}
}

// MixerRow describes a mixer with projections of its own. Such a layer is not a function of
// queries, keys and values, and therefore not in the catalogue of package mechanism.
type MixerRow struct {
	mechanism.Row // Order, Params and Constants are empty

	// Rope is set if the mixer rotates its queries and keys by Scope.Rope.
	Rope bool
	// ISTA is set if its blocks have the layer of NewISTA instead of an MLP.
	ISTA bool
}

// mixerArgs holds the sizes and settings of a mixer, and makes its weights.
type mixerArgs struct {
	*WeightMaker
	*settings.Reader // its settings

	Width   int // of rows
	Heads   int // which divide the width
	Context int // tokens that the model is trained on at once
}

// WeightMaker makes the weights of a layer.
type WeightMaker struct {
	// New adds a weight and returns it. first gives the initial value of each element,
	// from a key for this weight. If weights are only counted, the result has no elements.
	New func(name string, decay bool, first Initializer, shape ...int) *param.Param

	Bias      bool                 // projections have a bias
	Deviation func(in int) float64 // deviation of initial weights by the number of inputs; nil: they are 0
	Residual  float64              // factor of Deviation for projections that add to the residual stream
}

// Initializer returns the initial value of element i of a weight.
type Initializer func(key rng.Key, i uint64) float64

// NormalInit draws elements from a normal distribution with mean 0 and the given deviation.
func NormalInit(deviation float64) Initializer {
	return func(key rng.Key, i uint64) float64 { return deviation * key.Normal(i) }
}

// constantInit sets all elements to x.
func constantInit(x float64) Initializer { return func(rng.Key, uint64) float64 { return x } }

// NewLinear returns a projection from in to out channels, with weights name.weight and, with
// Bias, name.bias. The deviation of its initial weights is share·Deviation(in).
func (w *WeightMaker) NewLinear(name string, share float64, out, in int) Linear {
	l := Linear{W: w.New(name+".weight", true, w.fanInShare(share, in), out, in)}
	if w.Bias {
		l.B = w.New(name+".bias", false, constantInit(0), out)
	}
	return l
}

// fanInShare draws weights with the deviation share·Deviation(in).
func (w *WeightMaker) fanInShare(share float64, in int) Initializer {
	if w.Deviation == nil {
		return constantInit(0)
	}
	return NormalInit(share * w.Deviation(in))
}

// MixerNames returns the names of the mixers that own their projections.
func MixerNames() []string {
	names := make([]string, len(mixers))
	for i, r := range mixers {
		names[i] = r.Name
	}
	return names
}

// LookupMixer returns the mixer with the given name, and whether there is one.
func LookupMixer(name string) (MixerRow, bool) {
	for _, r := range mixers {
		if r.Name == name {
			return r, true
		}
	}
	return MixerRow{}, false
}

// NotAFunction returns an error if name is one of MixerNames, for callers that need a function
// of queries, keys and values.
func NotAFunction(name string) error {
	if _, owns := LookupMixer(name); owns {
		return fmt.Errorf("mechanism %s: owns its projections: it is a layer from x to y, not a function of q, k and v; farfield train --mechanism %s takes it", name, name)
	}
	return nil
}

// readSettings returns a reader of the settings in o. It returns an error if the order, a size or
// the name of a setting does not suit the mixer.
func (r *MixerRow) readSettings(o mechanism.Options) (*settings.Reader, error) {
	return settings.NewReader(r.Name, r.Settings, o.Set), r.CheckOptions(o)
}

// NewMixer returns mixer r for rows of the given width, with Heads, Length and Set of o. w makes
// its weights. It returns an error if a setting is unknown or out of range, or if o.Order is not
// 0.
func NewMixer(r MixerRow, width int, o mechanism.Options, w *WeightMaker) (Mixer, error) {
	values, err := r.readSettings(o)
	if err != nil {
		return nil, err
	}
	m := &mixerArgs{WeightMaker: w, Reader: values, Width: width, Heads: o.Heads, Context: o.Length}
	return mixerMakers()[r.Name](m)
}
