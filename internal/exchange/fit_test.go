package exchange

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// A fit makes the model closer to the trained one at the same cost, its numbers are read back, and it
// does not depend on the number of threads.
func TestFittedCellsLoseLess(t *testing.T) {
	for i, kind := range []model.Kind{model.Encoder, model.Decoder, model.Encoder} {
		run := func(fit int) *Result {
			x, err := untimed(t.Context(), subject(t, kind), texts(), Options{Cells: number(16), Order: number(i / 2), Block: number(8), Window: number(4), Length: 96, Fit: fit})
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		a := run(500)
		threads := par.Threads()
		par.SetThreads(1)
		b := run(500)
		par.SetThreads(threads)
		if !reflect.DeepEqual(a.Numbers(), b.Numbers()) {
			t.Errorf("%s: two fits differ", kind)
		}
		bare := run(0)
		if len(a.Unfitted) != 1 || a.Unfitted[0].Loss() != bare.Whole.Loss() || a.NearAlone.Loss() != bare.NearAlone.Loss() {
			t.Errorf("%s: without a fit the loss is %v, the fit says %v", kind, bare.Whole, a.Unfitted)
		}
		if math.Abs(a.Whole.Loss()) >= math.Abs(bare.Whole.Loss()) || a.ChoiceFLOPs > 1.05*bare.ChoiceFLOPs {
			t.Errorf("%s: fitted %v with %g operations, not fitted %v with %g", kind, a.Whole, a.ChoiceFLOPs, bare.Whole, bare.ChoiceFLOPs)
		}
		if page := string(a.Page("a model")); !strings.Contains(page, "far field of the mean") || !strings.Contains(page, "480 tokens") {
			t.Errorf("%s: the page is %s", kind, page)
		}
		numbers := map[string][]float32{}
		for _, x := range a.Numbers() {
			var err error
			if numbers[x.Name], err = x.Float32(); err != nil {
				t.Fatal(err)
			}
		}
		s := subject(t, kind)
		ref, err := s.Ask(t.Context(), texts().HeldOut)
		if err != nil {
			t.Fatal(err)
		}
		l := a.Manifest().Layers[0]
		if s.Model, err = s.Model.Exchanged(model.Exchange{Mechanism: l.Mechanism, Order: l.Order, Set: l.Set, Numbers: numbers}); err != nil {
			t.Fatal(err)
		}
		if q, err := s.Compare(t.Context(), ref, 100); err != nil || q.Loss() != a.Whole.Loss() {
			t.Errorf("%s: read back the loss is %v, was %v: %v", kind, q, a.Whole, err)
		}
	}
}

// Without a number as many tokens are fitted to as there are, and none where cells have no fit.
func TestFitTokens(t *testing.T) {
	for _, x := range []struct {
		fit, order   *int
		tokens, want int
		err          string
	}{
		{nil, nil, 100, 100, ""},
		{nil, number(0), 1 << 20, DefaultFit, ""},
		{nil, number(1), 100, 100, ""},
		{nil, number(2), 100, 0, ""},
		{number(7), number(0), 100, 7, ""},
		{number(0), number(2), 100, 0, ""},
		{number(101), nil, 100, 0, "fit: 101 tokens, needs 0 to 100"},
		{number(-1), nil, 100, 0, "fit: -1 tokens, needs 0 to 100"},
		{number(7), number(2), 100, 0, "fit: 7 tokens, and order is 2"},
	} {
		got, err := FitTokens(x.fit, x.order, x.tokens)
		if got != x.want || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("fit %v, order %v of %d tokens: %d, %v", x.fit, x.order, x.tokens, got, err)
		}
	}
}

// The queries of cells are the means of queries with the weights of softmax, and the far field of the
// mean is what its weights and values say.
func TestQueriesAndMeansOfCells(t *testing.T) {
	const n, d, cells = 40, 4, 5
	for _, causal := range []bool{false, true} {
		c := &attention.Call{Causal: causal, Q: tensor.NewHeads(1, 2, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, d)}
		for i, x := range [][]float32{c.Q.Data, c.K.Data, c.V.Data} {
			for j := range x {
				x[j] = float32(2 * rng.New(6).Fold(uint64(i)).Normal(uint64(j)))
			}
		}
		f := field{8, 4, 1, 1}
		to := &cellQueries{book: c.K.Data[3*d:][:cells*d], cells: cells, d: d, sums: [][]float64{make([]float64, cells*d), make([]float64, cells*d)}, mass: [][]float64{make([]float64, cells), make([]float64, cells)}}
		counter := queryCounter{field: f, scale: 0, to: to}
		forward := func(m attention.Mechanism) tensor.Heads {
			out := tensor.NewHeads(1, 2, n, d)
			if err := m.Forward(out, c, nil); err != nil {
				t.Fatal(err)
			}
			return out
		}
		forward(headwise.New(&counter))
		dot := func(x, y []float32) (sum float64) {
			for e := range d {
				sum += float64(x[e]) * float64(y[e])
			}
			return sum / math.Sqrt(d)
		}
		q, k, v := func(h, i int) []float32 { return c.Q.Head(0, h).Row(i) }, c.K.Head(0, 0).Row, c.V.Head(0, 0).Row
		cell := func(j int) int {
			best, least := 0, math.Inf(1)
			for x := range cells {
				var s float64
				for e := range d {
					y := float64(k(j)[e] - to.book[x*d+e])
					s += y * y
				}
				if s < least {
					best, least = x, s
				}
			}
			return best
		}
		isFar := func(i, j int) bool { return !f.isNear(i, j, n, causal) && (!causal || j <= i) }
		sums, mass := make([]float64, cells*d), make([]float64, cells)
		for h := range 2 {
			for i := range n {
				var all float64
				for j := range n {
					if !causal || j <= i {
						all += math.Exp(dot(q(h, i), k(j)))
					}
				}
				for j := range n {
					if isFar(i, j) {
						w := math.Exp(dot(q(h, i), k(j))) / all
						mass[cell(j)] += w
						for e := range d {
							sums[cell(j)*d+e] += w * float64(q(h, i)[e])
						}
					}
				}
			}
		}
		for i := range sums {
			if got := to.sums[0][i] + to.sums[1][i]; math.Abs(got-sums[i]) > 1e-4*(1+math.Abs(sums[i])) {
				t.Errorf("causal %t: the sum of queries %d is %g, want %g", causal, i, got, sums[i])
			}
		}
		tilt := to.tilts()
		for x := range cells {
			if want := sums[x*d] / mass[x]; mass[x] > 1 && math.Abs(float64(tilt[x*d])-want) > 0.1*(1+math.Abs(want)) {
				t.Errorf("causal %t: the query of cell %d begins with %g, the mean with %g", causal, x, tilt[x*d], want)
			}
		}
		means := &cellMeans{cellQueries: to, tilt: tilt, queries: []float64{0}, far: [][]float64{make([]float64, cells*(1+2*d))}}
		forward(headwise.New(&meansCounter{counter, means}))
		got := forward(newFrozenFar(Choice{Cells: cells, Block: f.block, Window: f.window}, 0, means))
		// exp(s q·k) is exp(s r·k) exp(s (q-r)·k̃) with the mean number of times that a key is far.
		for i := range n {
			var den float64
			num := make([]float64, d)
			for j := range n {
				if isFar(i, j) || causal && j > i {
					continue
				}
				w := math.Exp(dot(q(1, i), k(j)))
				den += w
				for e := range d {
					num[e] += w * float64(v(j)[e])
				}
			}
			for x := range cells {
				row := tilt[x*d:][:d]
				var all float64
				key, value := make([]float64, d), make([]float64, d)
				for j := range n {
					var times float64
					for i := range n {
						if isFar(i, j) {
							times += 1.0 / n
						}
					}
					if cell(j) != x || times == 0 {
						continue
					}
					w := times * math.Exp(dot(row, k(j)))
					all += w
					for e := range d {
						key[e] += w * float64(k(j)[e])
						value[e] += w * float64(v(j)[e])
					}
				}
				if all == 0 {
					continue
				}
				power := 0.0
				for e := range d {
					power += float64(q(1, i)[e]-row[e]) * key[e] / all / math.Sqrt(d)
				}
				w := math.Exp(power)
				den += all * w
				for e := range d {
					num[e] += value[e] * w
				}
			}
			for e := range d {
				if y := float64(got.Head(0, 1).Row(i)[e]); math.Abs(y-num[e]/den) > 1e-3 {
					t.Fatalf("causal %t: the output of query %d is %g, want %g", causal, i, y, num[e]/den)
				}
			}
		}
		if y := forward(newNearAlone(f, 0)); slices.Equal(y.Data, got.Data) {
			t.Errorf("causal %t: the far field of the mean changes nothing", causal)
		}
	}
}
