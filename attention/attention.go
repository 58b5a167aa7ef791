// Package attention is the contract that every mechanism keeps, and the engines that
// keep it. The direct form computes every weight, the linear form none. The package
// knows no mechanism by name; package mechanism is the catalogue.
//
// Shape letters: B batch, H query heads, Hkv key heads, N queries, M keys, D query and
// key width per head, Dv value width, F packed features, C tokens of a chunk.
//
// A Call describes one attention: queries of B·H·N rows of D numbers, keys and values
// of B·Hkv·M rows of D and Dv, and the mask. The weights of a query add up to 1 unless
// its mechanism does not divide. Decay is a natural logarithm per token. A call whose
// parts do not fit each other gives an error that names the field and both values,
// before anything is written. Numbers are not checked: masked elements change no bit,
// not even NaN.
//
// Outputs and gradients need memory of their own. A call whose output overlaps an input,
// and gradients that overlap one another, are refused; views that only interleave do not
// overlap. Nothing is computed in place.
//
// The direct form follows Dao et al. (2022, arXiv 2205.14135) on a processor. The
// linear form follows Katharopoulos et al. (2020, arXiv 2006.16236), with the packed
// monomials of docs/math.md. docs/numerics.md derives the rounding errors of outputs.
package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/engine"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/hybrid"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// New returns the mechanism that s describes. It returns an error if its fields do not fit
// together, or a number is outside its range: all are finite, Eps and Floor are 0 or more.
func New[T tensor.Float](s Spec[T]) (Mechanism[T], error) {
	return kernel.Instance[func(Spec[T]) (Mechanism[T], error)](new32, new64)(s)
}

var (
	new32, new64         = build[float32], build[float64]
	softmax32, softmax64 = engine.NewSoftmax[float32], engine.NewSoftmax[float64]
)

// NewSoftmax returns a dense softmax kernel. scale multiplies q·k; 0 means 1/√D.
func NewSoftmax[T tensor.Float](scale float64) Softmax[T] {
	return kernel.Instance[func(float64) Softmax[T]](softmax32, softmax64)(scale)
}

func build[T tensor.Float](s Spec[T]) (Mechanism[T], error) {
	if err := spec.CheckNumbers(&s); err != nil {
		return nil, err
	}
	if s.Window != nil {
		return hybrid.New(s)
	}
	e, err := engine.New(headtask.Spec[T]{Spec: s})
	if err != nil {
		return nil, err
	}
	return e, nil
}
