package oracle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/suite"
)

func random(r *rand.Rand, b, h, n, d int) Heads {
	x := NewHeads(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = r.NormFloat64()
	}
	return x
}

// By hand, T_2: q̂ = (-1, 1); k̂ = (1, -1) and (-1, 1); scores -2 and 2;
// weights 1-2+2 = 1 and 1+2+2 = 5; o = (1·6 + 5·12)/6 = 11.
func TestFastmaxByHand(t *testing.T) {
	m := &Mechanism{Norm: Standard, Scale: 1, Coef: TaylorCoef(2)}
	r := m.Forward(&Call{
		Q: HeadsOf([]float64{3, 7}, 1, 1, 1, 2),
		K: HeadsOf([]float64{5, 4, 0, 10}, 1, 1, 2, 2),
		V: HeadsOf([]float64{6, 12}, 1, 1, 2, 1),
	})
	if r.O.Data[0] != 11 || r.Den[0] != 6 || r.W.Data[0] != 1.0/6 {
		t.Errorf("o %v, den %v, weights %v; want 11, 6, [1/6 5/6]", r.O.Data, r.Den, r.W.Data)
	}
	// |a|·|b| is 2 for both keys: f̄ = 5 twice, over 6.
	if r.Cond[0] != 10.0/6 {
		t.Errorf("condf %v, want 10/6", r.Cond[0])
	}
}

// By hand, elu + 1 with eps 1: φ(q) = (3, 1), φ(k) = (2, 1); weight 7;
// o = 7·8/(7+1).
func TestLinearByHand(t *testing.T) {
	m := &Mechanism{Scale: 1, Map: EluPlusOne, Coef: []float64{0, 1}, Eps: 1}
	r := m.Forward(&Call{
		Q: HeadsOf([]float64{2, 0}, 1, 1, 1, 2),
		K: HeadsOf([]float64{1, 0}, 1, 1, 1, 2),
		V: HeadsOf([]float64{8}, 1, 1, 1, 1),
	})
	if r.O.Data[0] != 7 || r.Den[0] != 8 {
		t.Errorf("o %v, den %v; want 7, 8", r.O.Data, r.Den)
	}
}

func TestSoftmaxByHand(t *testing.T) {
	m := &Mechanism{Scale: 1, Exp: true}
	r := m.Forward(&Call{
		Q: HeadsOf([]float64{1}, 1, 1, 1, 1),
		K: HeadsOf([]float64{1000, 1000 + math.Ln2}, 1, 1, 2, 1),
		V: HeadsOf([]float64{3, 6}, 1, 1, 2, 1),
	})
	if math.Abs(r.O.Data[0]-5) > 1e-12 || math.Abs(r.Den[0]-1000-math.Log(3)) > 1e-12 {
		t.Errorf("o %v, den %v; want 5, 1000+ln 3", r.O.Data, r.Den)
	}
}

// holdDerivatives reports where grads, of f at x, is not what differences of f say, along four fixed
// directions of unit length, and with -long for each element by itself. Each element is in each of them with 1/√n, by a sign: one that is off by e is
// seen as e/√n, of 120 elements as e/11.
func holdDerivatives(t *testing.T, name string, f func() float64, x, grads []float64) {
	t.Helper()
	if len(x) != len(grads) {
		t.Errorf("%s has %d elements, not %d", name, len(grads), len(x))
		return
	}
	if len(x) == 0 {
		return
	}
	if suite.IsLong() {
		want := check.NumericGradient(f, x)
		if e := check.ErrorRatio(grads, want, 1e-8*(1+check.MaxAbs(want))); e > 1 {
			t.Errorf("%s is off finite differences by %.1f limits", name, e)
		}
	}
	before := slices.Clone(x)
	for k := range uint64(4) {
		r, u, got := rand.New(rand.NewPCG(11, k)), make([]float64, len(x)), 0.0
		for i := range u {
			u[i] = float64(2*r.IntN(2)-1) / math.Sqrt(float64(len(x)))
			got += u[i] * grads[i]
		}
		along := []float64{0}
		want := check.NumericGradient(func() float64 {
			for i := range x {
				x[i] = before[i] + along[0]*u[i]
			}
			return f()
		}, along)
		copy(x, before)
		if e := check.ErrorRatio([]float64{got}, want, 1e-8*(1+check.MaxAbs(grads))); e > 1 {
			t.Errorf("%s along direction %d is off the finite difference by %.1f limits", name, k, e)
		}
	}
}

func TestGradientsAreDerivatives(t *testing.T) {
	mechanisms := map[string]*Mechanism{
		"softmax":     {Exp: true},
		"fastmax1":    {Norm: Bounded, Scale: 0.7, Coef: TaylorCoef(1)},
		"fastmax2":    {Norm: Standard, Scale: 1, Coef: TaylorCoef(2)},
		"fastmax4":    {Norm: Standard, Coef: TaylorCoef(4)},
		"taylorshift": {Norm: Unit, Scale: 1, Tau: []float64{0.5, 1.5, -2, 0}, Coef: TaylorCoef(2)},
		"one tau":     {Norm: Unit, Tau: []float64{1.5}, Coef: TaylorCoef(2)},
		"max":         {Norm: Max, Scale: 1.5, Coef: TaylorCoef(2)},
		"tokens":      {Norm: TokenCentred, Scale: 1, Coef: TaylorCoef(2)},
		"channels":    {Norm: ChannelCentred, Scale: 2, Tau: []float64{0.5, 1.5, -2, 0}, Coef: TaylorCoef(2)},
		"global":      {Norm: GlobalCentred, Scale: 1, Coef: TaylorCoef(3)},
		"squared":     {Norm: MaxSquared, Scale: 1, Coef: TaylorCoef(2)},
		"outputs":     {Norm: Unit, Tau: []float64{1.5}, Coef: TaylorCoef(2), OutputNorm: true},
		"power":       {Coef: []float64{0, 0, 1}},
		"linear":      {Scale: 1, Map: EluPlusOne, Coef: []float64{0, 1}, Eps: 1e-6},
	}
	r := rand.New(rand.NewPCG(1, 2))
	plain := func(n, m int) *Call {
		return &Call{Q: random(r, 2, 4, n, 5), K: random(r, 2, 2, m, 5), V: random(r, 2, 2, m, 3)}
	}
	full, causal, masked, packed := plain(3, 4), plain(5, 4), plain(3, 4), plain(5, 6)
	causal.Causal, causal.Theta = true, 100
	masked.KeyLens = []int64{3, 0}
	masked.KeyMask = []bool{true, false, true, true, true, true, true, true}
	masked.AttnKeep = []bool{true, true, true, false, false, false, false, false, true, true, true, true}
	packed.Q.B, packed.K.B, packed.V.B = 1, 1, 1
	packed.CuQ, packed.CuK, packed.Causal = []int64{0, 2, 2, 5}, []int64{0, 1, 3, 6}, true
	decay := func(c *Call) {
		c.Causal = true
		c.LogG = random(r, c.K.B, c.K.H, c.K.N, 1)
		for i, x := range c.LogG.Data {
			c.LogG.Data[i] = -math.Abs(x)
		}
	}
	faded, holes, parts := plain(5, 5), *masked, *packed
	decay(faded)
	decay(&holes)
	decay(&parts)
	for call, c := range map[string]*Call{
		"full": full, "causal": causal, "masked": masked, "packed": packed,
		"decay": faded, "decay, masked": &holes, "decay, packed": &parts,
	} {
		for name, m := range mechanisms {
			t.Run(fmt.Sprintf("%s/%s", name, call), func(t *testing.T) {
				do := random(r, c.Q.B, c.Q.H, c.Q.N, c.V.D)
				loss := func() float64 { return dotProduct(m.Forward(c).O.Data, do.Data) }
				g := m.Backward(c, do)
				for _, x := range []struct {
					name      string
					at, grads []float64
				}{
					{"dq", c.Q.Data[:len(g.DQ.Data)], g.DQ.Data},
					{"dk", c.K.Data[:len(g.DK.Data)], g.DK.Data},
					{"dv", c.V.Data[:len(g.DV.Data)], g.DV.Data},
					{"dtau", m.Tau, g.DTau},
					{"dlog_g", c.LogG.Data, g.DLogG.Data},
				} {
					holdDerivatives(t, x.name, loss, x.at, x.grads)
				}
			})
		}
	}
}

func TestQueriesThatSeeNothingAreZeroAndCounted(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	c := &Call{Q: random(r, 1, 2, 5, 3), K: random(r, 1, 1, 2, 3), V: random(r, 1, 1, 2, 3), Causal: true}
	m := &Mechanism{Exp: true}
	out := m.Forward(c)
	if out.QueriesWithoutKeys != 6 {
		t.Errorf("%d unseen queries, want 3 of each of 2 heads", out.QueriesWithoutKeys)
	}
	for h := range 2 {
		for i := range 3 {
			for _, x := range out.O.Head(0, h).Row(i) {
				if x != 0 {
					t.Fatalf("query %d of head %d is not zero", i, h)
				}
			}
		}
	}
}
