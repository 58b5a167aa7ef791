package nn

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/settings"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// mixers are the mixers that own their projections. To add one, write a file
// with its layer and its row, and list the row here.
var mixers = []MixerRow{mamba2, retnet, hyena, crate}

// MixerRow is a mixer that owns its projections: a layer from x to y, which is no
// function of queries, keys and values and thus no row of package mechanism.
type MixerRow struct {
	mechanism.Row // Order, Params and Constants are empty

	// Rope says that it rotates its queries and keys by Scope.Rope.
	Rope bool
	// ISTA says that its blocks have an ISTA step in place of the MLP.
	ISTA bool

	f32 func(*MixerArgs[float32]) (Mixer[float32], error)
	f64 func(*MixerArgs[float64]) (Mixer[float64], error)
}

// MixerArgs is what a mixer is made for, and of.
type MixerArgs[T tensor.Float] struct {
	*WeightMaker[T]
	*settings.Reader // its settings

	Width   int // of rows
	Heads   int // which divide the width
	Context int // tokens that the model is trained on at once
}

// WeightMaker makes the weights of a layer.
type WeightMaker[T tensor.Float] struct {
	// New adds a weight. first gives what its elements begin with, from a key of
	// its own. A weight that is only counted has no elements.
	New func(name string, decay bool, first Initializer, shape ...int) *param.Param[T]

	Bias      bool                 // of projections
	Deviation func(in int) float64 // of first weights over so many inputs; nil: they are 0
	Residual  float64              // share of it of those that add to the residual stream
}

// Initializer is what element i of a weight begins with.
type Initializer func(key rng.Key, i uint64) float64

// NormalInit are first elements from a normal distribution.
func NormalInit(deviation float64) Initializer {
	return func(key rng.Key, i uint64) float64 { return deviation * key.Normal(i) }
}

// ConstantInit are first elements that are all x.
func ConstantInit(x float64) Initializer { return func(rng.Key, uint64) float64 { return x } }

// NewLinear makes a projection, whose first weights are share times as large as others.
func (w *WeightMaker[T]) NewLinear(name string, share float64, out, in int) Linear[T] {
	l := Linear[T]{W: w.New(name+".weight", true, w.fanInShare(share, in), out, in)}
	if w.Bias {
		l.B = w.New(name+".bias", false, ConstantInit(0), out)
	}
	return l
}

// fanInShare are a share of the first weights over so many inputs.
func (w *WeightMaker[T]) fanInShare(share float64, in int) Initializer {
	if w.Deviation == nil {
		return ConstantInit(0)
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

// LookupMixer returns the row of that name, if there is one.
func LookupMixer(name string) (MixerRow, bool) {
	for _, r := range mixers {
		if r.Name == name {
			return r, true
		}
	}
	return MixerRow{}, false
}

// NotAFunction is the error of whoever needs a function of queries, keys and
// values and is given the name of a mixer that is none; nil for other names.
func NotAFunction(name string) error {
	if _, owns := LookupMixer(name); owns {
		return fmt.Errorf("mechanism %s: owns its projections: it is a layer from x to y, not a function of q, k and v; farfield train --mechanism %s takes it", name, name)
	}
	return nil
}

// NewMixer makes the mixer of a row for rows of that width, with the Order,
// Heads, Length and Set of o.
func NewMixer[T tensor.Float](r MixerRow, width int, o mechanism.Options, w *WeightMaker[T]) (Mixer[T], error) {
	values, err := r.ReadSettings(&o)
	if err != nil {
		return nil, err
	}
	m := &MixerArgs[T]{WeightMaker: w, Reader: values, Width: width, Heads: o.Heads, Context: o.Length}
	build, single := any(r.f32).(func(*MixerArgs[T]) (Mixer[T], error))
	if !single {
		build = any(r.f64).(func(*MixerArgs[T]) (Mixer[T], error))
	}
	return build(m)
}
