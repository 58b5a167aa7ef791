//go:build float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// lossOf is the textbook's of a mechanism with eta 0.1.
func lossOf(b *oracle.Primal, oc *oracle.Call, square bool) float64 {
	return b.Losses(oc, func(j float64) float64 {
		if square {
			return 0.1 * j * j
		}
		return 0.1 * j
	})
}

// The loss is the textbook's. The gradient of loss and outputs together agrees with finite
// differences.
func TestPrimalLossAndGradientAreTheTextbook(t *testing.T) {
	for _, x := range []struct {
		set            map[string]string
		causal         bool
		tokens         int
		lens           []int64
		mask           bool
		means, learned bool
	}{
		{set: map[string]string{}},
		{set: map[string]string{}, causal: true, lens: []int64{4, 5}},
		{set: map[string]string{"loss": "code"}, causal: true, means: true},
		{set: map[string]string{"loss": "code", "square": "false"}, means: true, lens: []int64{3, 5}},
		{set: map[string]string{"data": "dependent", "tokens": "3"}, tokens: 3, mask: true},
		{set: map[string]string{"data": "dependent", "tokens": "9", "trace": "learned", "loss": "code"}, tokens: 9, means: true, learned: true},
	} {
		x.set["rank"] = "2"
		sh := shape{b: 2, h: 2, hkv: 1, n: 5, m: 5, d: 4, dv: 4, causal: x.causal, lens: x.lens, mask: x.mask}
		oc, do := sh.call(90)
		m, err := New("primal", Options{Width: 4, Heads: 2, Set: x.set})
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range m.Params().All()[4].Data { // all 0 before
			m.Params().All()[4].Data[i] = b + float64(i)/8
		}
		c := callIn(oc)
		of := func() float64 { // loss, and 0.5 times the outputs'
			p := numbers{}
			readNumbers(p, m.Params())
			book := primalBook(p, 2, x.tokens)
			book.Means, book.Learned = x.means, x.learned
			read := *oc
			read.Q, read.K, read.V = c.Q, c.K, c.V
			sum := lossOf(book, &read, x.set["square"] == "") * 2
			for i, o := range oracle.Outputs(book.Outputs).Forward(&read).O.Data {
				sum += o * do.Data[i]
			}
			return sum
		}
		out := output(c)
		var keep attention.Saved
		if err := m.Forward(out, c, &keep); err != nil {
			t.Fatal(err)
		}
		want := of()
		for i, o := range out.Data {
			want -= o * do.Data[i]
		}
		if math.Abs(keep.Aux-want/2) > 1e-12*(1+math.Abs(want)) {
			t.Errorf("%v: the loss is %v, want %v", x.set, keep.Aux, want/2)
		}
		g := attention.Grads{DQ: poisoned(2, 2, 5, 4), DK: poisoned(2, 1, 5, 4), DV: poisoned(2, 1, 5, 4), DAux: 2}
		m.Params().ZeroGrad()
		if err := m.Backward(&g, do, out, c, &keep); err != nil {
			t.Fatal(err)
		}
		type point struct {
			name     string
			at, grad []float64
		}
		points := []point{{"q", c.Q.Data, g.DQ.Data}, {"k", c.K.Data, g.DK.Data}, {"v", c.V.Data, g.DV.Data}}
		for _, p := range m.Params().All() {
			points = append(points, point{p.Name, p.Data, p.Grad})
		}
		for _, p := range points {
			want := check.NumericGradient(of, p.at)
			if e := check.ErrorRatio(p.grad, want, 1e-6*(1+check.MaxAbs(want))); e > 1 {
				t.Errorf("%v: the gradient of %s differs from finite differences by %.3g limits", x.set, p.name, e)
			}
		}
	}
}
