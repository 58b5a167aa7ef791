package headtask

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
)

// A gated mechanism (Spec.Gated) multiplies the key of a token by 1 - g, where g is the token's
// decay factor. Its sums are S_t = g·S_{t-1} + (1-g)·φ(k)·vᵀ, a running mean of keys and values
// (Peng et al. 2021, RFA, arXiv 2103.02143, section 3.2). Without LogG the factor is 1. The
// factor is applied to the features of the key, so that all forms and states contain it.

// GateOf returns the factor of the features of key j.
func (u *Geometry) GateOf(j int) float64 {
	if !u.Spec.Gated || len(u.LogG.Data) == 0 {
		return 1
	}
	return -math.Expm1(u.LogDecay(j))
}

// hasGates reports whether the tokens of a side are multiplied by gate factors.
func (u *Geometry) hasGates(s *headRows) bool {
	return s.keys && u.Spec.Gated && len(u.LogG.Data) > 0
}

// keyGates returns the factors of keys j0 ≤ j < j1.
func (u *Task) keyGates(j0, j1 int) []float {
	f := u.TakeScratch(j1 - j0)
	for r := range f {
		f[r] = float(u.GateOf(j0 + r))
	}
	return f
}

// applyGates multiplies columns of y, features of keys j0 ≤ j < j1, by their factors.
func (u *Task) applyGates(y []float, ld, j0, j1 int) {
	mark := u.Arena.Mark()
	factors := u.keyGates(j0, j1)
	for f := range u.PreparedWidth {
		row := y[f*ld:][:j1-j0]
		u.Table.Mul(row, row, factors)
	}
	u.Arena.Reset(mark)
}

// gateGrad replaces b.Y, the gradient of gated features for keys from j0 on, by the
// gradient of the features. It adds the gradient of the gates: d(1-g)/d log g = -g.
func (u *Task) gateGrad(b *attention.FeatureBlock, j0 int) {
	mark := u.Arena.Mark()
	if u.DGate != nil {
		dy := u.TakeScratch(len(b.Y))
		copy(dy, b.Y)
		u.Spec.Features.Map(b)
		along := arena.TakeZeros[float](u.Arena, b.N)
		for f := range u.PreparedWidth {
			u.Table.MulAdd(along, dy[f*b.Stride:][:b.N], b.Y[f*b.Stride:][:b.N])
		}
		copy(b.Y, dy)
		for r, x := range along {
			u.DGate[j0+r] -= float64(x) * math.Exp(u.LogDecay(j0+r))
		}
	}
	u.applyGates(b.Y, b.Stride, j0, j0+b.N)
	u.Arena.Reset(mark)
}
