package exchange

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Updates make the fitted model closer to the trained one, at the same cost and on any number of threads,
// and train the near field with the far field of the mean, too.
func TestUpdatesOfFittedCells(t *testing.T) {
	for _, kind := range []model.Kind{model.Encoder, model.Decoder} {
		o := Options{Cells: number(16), Order: number(0), Block: number(8), Window: number(4), Length: 96, Fit: 500, Updates: 30}
		run := func(o Options) *Result {
			x, err := Run(t.Context(), subject(t, kind), texts(), o)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		a := run(o)
		threads := par.Threads()
		par.SetThreads(1)
		b := run(o)
		par.SetThreads(threads)
		if !reflect.DeepEqual(a.Numbers(), b.Numbers()) {
			t.Errorf("%s: two trainings differ", kind)
		}
		o.Updates = 0
		fitted := run(o)
		if a.Updates != 30 || len(a.Untuned) != 1 || a.Untuned[0].Loss() != fitted.Whole.Loss() || a.Unfitted[0].Loss() != fitted.Unfitted[0].Loss() {
			t.Errorf("%s: without updates the loss is %v, not %v", kind, a.Untuned, fitted.Whole)
		}
		if a.Whole.Loss() >= fitted.Whole.Loss() || a.NearFitted[0].Loss() == fitted.NearFitted[0].Loss() || a.ChoiceFLOPs != fitted.ChoiceFLOPs {
			t.Errorf("%s: %v and near field %v after updates, %v and %v before", kind, a.Whole, a.NearFitted, fitted.Whole, fitted.NearFitted)
		}
		if page := string(a.Page("a model")); !strings.Contains(page, "30 updates of these queries") || !strings.Contains(page, "| 16 cells, fitted, 30 updates |") {
			t.Errorf("%s: the page is %s", kind, page)
		}
	}
	_, err := Run(t.Context(), subject(t, model.Decoder), texts(), Options{Cells: number(16), Length: 96, Updates: 3})
	if err == nil || !strings.Contains(err.Error(), "updates: 3, and fit is 0") {
		t.Errorf("updates without a fit: %v", err)
	}
}

// With a wish, updates lead to cheaper cells.
func TestUpdatesMakeCheaperCellsDo(t *testing.T) {
	run := func(updates int) *Result {
		x, err := Run(t.Context(), subject(t, model.Decoder), texts(), Options{Order: number(0), Block: number(8), Window: number(4), Length: 96, Fit: 500, Updates: updates, Wish: &Wish{Nats: 0.05}})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	fitted, tuned := run(0), run(30)
	if !tuned.Meets || tuned.ChoiceFLOPs > fitted.ChoiceFLOPs {
		t.Errorf("after updates %v meets %t, before %v %t", tuned.Choice, tuned.Meets, fitted.Choice, fitted.Meets)
	}
}

// Each window comes once before one comes again, in an order that the seed decides.
func TestDrawnWindows(t *testing.T) {
	r := &run{calibration: windows(5, 8)}
	counts := map[*int32]int{}
	for n := range 10 {
		counts[&r.drawWindow(n)[0]]++
		if n == 4 && len(counts) != 5 {
			t.Errorf("%d of 5 windows came in the first five", len(counts))
		}
	}
	for _, n := range counts {
		if n != 2 {
			t.Errorf("a window came %d times in ten", n)
		}
	}
}

// The gradients of both losses are their finite differences: the divergence of distributions, and 1 less
// the cosine.
func TestGradientsOfLosses(t *testing.T) {
	const n, width, h = 2, 5, 1e-2
	draw := func(seed uint64) []float32 {
		x := make([]float32, n*width)
		for i := range x {
			x[i] = float32(rng.New(seed).Normal(uint64(i)))
		}
		return x
	}
	for name, of := range map[string]struct {
		loss     func(x, y []float32) float64
		gradient func(x, y []float32)
	}{
		"divergence": {func(x, y []float32) (sum float64) {
			for i := range n {
				a, b := x[i*width:][:width], y[i*width:][:width]
				for j := range width {
					p := float64(b[j]) - logSum(b)
					sum += math.Exp(p) * (p - float64(a[j]) + logSum(a)) / n
				}
			}
			return sum
		}, func(x, y []float32) { divergence(x, y, width, 1) }},
		"cosine": {func(x, y []float32) (sum float64) {
			for i := range n {
				sum += (1 - cosine(x[i*width:][:width], y[i*width:][:width])) / n
			}
			return sum
		}, func(x, y []float32) {
			for i := range n {
				turn(x[i*width:][:width], y[i*width:][:width], 1.0/n)
			}
		}},
	} {
		x, y := draw(1), draw(2)
		got := draw(1)
		of.gradient(got, y)
		for i := range x {
			at := x[i]
			x[i] = at + h
			up := of.loss(x, y)
			x[i] = at - h
			want := (up - of.loss(x, y)) / (float64(at+h) - float64(at-h))
			x[i] = at
			// Third derivatives are below 1 here, so differences are off by less than h²/6.
			if math.Abs(float64(got[i])-want) > h*h/6+1e-6 {
				t.Errorf("%s: element %d is %g, by differences %g", name, i, got[i], want)
			}
		}
	}
}

// The gradients of the near field with a far field of the mean are finite differences.
func TestGradientsOfTheFarFieldOfTheMean(t *testing.T) {
	const n, d, cells, h = 20, 4, 5, 1e-2
	for _, causal := range []bool{false, true} {
		c := &attention.Call{Causal: causal, Q: tensor.NewHeads(1, 2, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, d)}
		c.Rope = attention.NewRope(d, 10000, 0, n)
		draw := func(x []float32, seed uint64) {
			for i := range x {
				x[i] = float32(rng.New(seed).Normal(uint64(i)))
			}
		}
		for i, x := range [][]float32{c.Q.Data, c.K.Data, c.V.Data} {
			draw(x, uint64(i))
		}
		far := make([]float64, cells*(1+2*d))
		for i := range far {
			far[i] = rng.New(4).Normal(uint64(i))
			if i%(1+2*d) == 0 {
				far[i] = 2 + math.Abs(far[i])
			}
		}
		x := newFrozenFar(Choice{Cells: cells, Block: 8, Window: 4}, 0, &cellMeans{cellQueries: &cellQueries{book: make([]float32, cells*d), cells: cells, d: d}, tilt: make([]float32, cells*d), queries: []float64{20}, far: [][]float64{far}}).(*frozenFar)
		out, dout := tensor.NewHeads(1, 2, n, d), tensor.NewHeads(1, 2, n, d)
		draw(dout.Data, 9)
		loss := func() (sum float64) {
			if err := x.Forward(out, c, nil); err != nil {
				t.Fatal(err)
			}
			for i, y := range out.Data {
				sum += float64(y) * float64(dout.Data[i])
			}
			return sum
		}
		keep := new(attention.Saved)
		if err := x.Forward(out, c, keep); err != nil {
			t.Fatal(err)
		}
		g := attention.Grads{DQ: tensor.NewHeads(1, 2, n, d), DK: tensor.NewHeads(1, 1, n, d), DV: tensor.NewHeads(1, 1, n, d)}
		if err := x.Backward(&g, dout, out, c, keep); err != nil {
			t.Fatal(err)
		}
		for name, of := range map[string][2][]float32{
			"q": {c.Q.Data, g.DQ.Data}, "k": {c.K.Data, g.DK.Data}, "v": {c.V.Data, g.DV.Data},
			"keys": {x.keys.Data[:cells*d], x.keys.Grad}, "values": {x.values.Data[:cells*d], x.values.Grad}, "powers": {x.powers.Data[:cells], x.powers.Grad},
		} {
			for i := range of[0] {
				at := of[0][i]
				of[0][i] = at + h
				up := loss()
				of[0][i] = at - h
				want := (up - loss()) / (float64(at+h) - float64(at-h))
				of[0][i] = at
				// Sums of 160 products of numbers about 1 are rounded by 1e-6, differences by 1e-4; their third
				// derivatives of about 10 add h²·10/6.
				if math.Abs(float64(of[1][i])-want) > 4e-4 {
					t.Errorf("causal %t: the gradient of %s[%d] is %g, by differences %g", causal, name, i, of[1][i], want)
				}
			}
		}
	}
}
