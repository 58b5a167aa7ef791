//go:build float64

package nn

import (
	"errors"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Steps of cross-attention normalise queries, keys and outputs as Forward does.
func TestStepsOfCrossAttentionNormaliseHeads(t *testing.T) {
	s := &source{key: rng.New(19)}
	const h, hkv, d, b, n, m, width = 4, 2, 3, 2, 5, 7, 6
	linear := func(out, in int) Linear { return Linear{W: weight(s, out, in)} }
	norm := func() *RMSNorm { return &RMSNorm{Gain: weight(s, d), Eps: 1e-6} }
	a := &Attention{
		Q: linear(h*d, width), K: linear(hkv*d, width), V: linear(hkv*d, width), O: linear(width, h*d),
		QNorm: norm(), KNorm: norm(), ONorm: norm(), H: h, Hkv: hkv, D: d,
	}
	var err error
	if a.Mechanism, err = mechanism.New("softmax", mechanism.Options{}); err != nil {
		t.Fatal(err)
	}
	c := CrossAttention{a}
	x, context, zero := matrix(s, b*n, width), matrix(s, b*m, width), tensor.NewMat(b*n, width)
	want, got := tensor.NewMat(b*n, width), tensor.NewMat(b*n, width)
	err = c.Forward(want, zero, x, Scope{B: b, Source: context}, c.NewTrace(), false)
	err = errors.Join(err, c.Step(got, x, c.SourceState(context, b, nil), Scope{B: b}, c.NewTrace()))
	if r := check.ErrorRatio(got.Data, want.Data, 1e-12*check.MaxAbs(want.Data)); err != nil || !(r <= 1) {
		t.Errorf("%v, errs by %.3g of 1e-12", err, r)
	}
}
