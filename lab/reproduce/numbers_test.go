package reproduce

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/papercost"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func TestSingularValues(t *testing.T) {
	// Columns of a rotation, scaled: their lengths are the singular values.
	c, s := math.Cos(0.3), math.Sin(0.3)
	got := singularValues([]float64{3 * c, -2 * s, 0, 3 * s, 2 * c, 0, 0, 0, 5}, 3)
	for i, want := range []float64{5, 3, 2} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("singular values %v", got)
		}
	}
	// Turned on the other side, too, with values that columns do not show.
	const n = 12
	key := rng.New(3)
	a := make([]float64, n*n)
	for r := range 3 { // of rank 3
		for i := range n {
			for j := range n {
				a[i*n+j] += key.Normal(uint64(r*n+i)) * key.Normal(uint64(1000+r*n+j))
			}
		}
	}
	got = singularValues(a, n)
	var sum, all float64
	for _, v := range got {
		sum += v * v
	}
	for _, v := range a {
		all += v * v
	}
	if math.Abs(sum-all) > 1e-12*all || got[2] < 0.1 || got[3] > 1e-6*got[0] {
		t.Errorf("singular values %v of a matrix of rank 3 with norm² %g", got, all)
	}
	if x := tail(got, 3); x > 1e-6 {
		t.Errorf("%g is left of rank 3", x)
	}
}

// TestMaterialised holds both forms against the mechanism and their ledgers
// against the published counts.
func TestMaterialised(t *testing.T) {
	for _, d := range []int{4, 8} {
		for _, n := range []int{5, 40, 100} {
			x := tokensOf(n, d)
			var direct, efficient ledger
			a, b := make([]float32, n*d), make([]float32, n*d)
			directTaylorShift(a, x[0], x[1], x[2], n, d, &direct)
			efficientTaylorShift(b, x[0], x[1], x[2], n, d, &efficient)
			for i := range a {
				if math.Abs(float64(a[i]-b[i])) > 1e-5 {
					t.Fatalf("d %d, n %d: outputs %g and %g", d, n, a[i], b[i])
				}
			}
			if direct.held != 0 || efficient.held != 0 {
				t.Errorf("d %d, n %d: %d and %d numbers are not given back", d, n, direct.held, efficient.held)
			}
			paper := papercost.TaylorShiftCost(n, d)
			if float64(direct.peak) != paper.EntriesDirect.Total() {
				t.Errorf("d %d, n %d: direct holds %d numbers, the paper %g", d, n, direct.peak, paper.EntriesDirect.Total())
			}
			// Denominators are not in the paper's count.
			if float64(efficient.peak) != paper.EntriesEfficient.Total()+float64(n) {
				t.Errorf("d %d, n %d: efficient holds %d numbers, the paper %g", d, n, efficient.peak, paper.EntriesEfficient.Total())
			}
		}
	}
	b, err := countBuffers(&Work{Ctx: t.Context()}, 8)
	if err != nil || b.N1 < 47 || b.N1 > 49 || b.Difference > 1e-5 {
		t.Errorf("N1 at d = 8 is %+v, %v; published 47", b, err)
	}
}

// TestDerivatives compares eq. 14 with differences of the outputs of T_2.
func TestDerivatives(t *testing.T) {
	key := rng.New(7)
	const n = 9
	s, v := make([]float64, n), make([]float64, n)
	for i := range n {
		s[i], v[i] = 2*key.Normal(uint64(i)), key.Normal(uint64(100+i))
	}
	output := func() (o, g float64) {
		for i := range n {
			g += taylor(2, s[i])
			o += taylor(2, s[i]) * v[i]
		}
		return o / g, g
	}
	o, g := output()
	for l := range n {
		const h = 1e-6
		s[l] += h
		high, _ := output()
		s[l] -= 2 * h
		low, _ := output()
		s[l] += h
		if want := (high - low) / (2 * h); math.Abs(taylor(1, s[l])/g*(v[l]-o)-want) > 1e-8 {
			t.Errorf("derivative by score %d is %g, differences give %g", l, taylor(1, s[l])/g*(v[l]-o), want)
		}
	}
	for _, c := range []derivativeConfig{{"random", 64, 32, 1}, {"aligned", 64, 32, 1}} {
		x, err := c.run()
		if err != nil {
			t.Fatal(err)
		}
		if x.ShareOfTightBound > 1 {
			t.Errorf("%s: %g times the bound (max v - min v)/√N", c.Data, x.ShareOfTightBound)
		}
		// y = √(N/3) reaches 9/8·√(1/3) of the bound in the limit of many keys.
		if reach := 9.0 / 8 / math.Sqrt(3); c.Data == "aligned" && math.Abs(x.ShareOfTightBound/reach-1) > 0.03 {
			t.Errorf("aligned keys reach %g of the bound, %g was expected", x.ShareOfTightBound, reach)
		}
		if c.Data == "aligned" && x.Claimed < 1 {
			t.Errorf("aligned keys reach %g of the claimed bound", x.Claimed)
		}
	}
}

func TestLowRank(t *testing.T) {
	const n, d = 20, 6
	for _, rank := range []int{1, 2, d} {
		x := lowRank(rng.New(1), n, d, rank)
		square := make([]float64, n*n)
		for i := range n {
			copy(square[i*n:], x.Data[i*d:(i+1)*d])
		}
		s := singularValues(square, n)
		if s[rank-1] < 0.1 || s[rank] > 1e-9 {
			t.Errorf("rank %d: singular values %v", rank, s[:d+1])
		}
	}
}

// TestSizes compares the simulated sizes with what is exact: the denominator of
// T_2 has the mean N(1 + 1/2d), and sizes of normalised terms follow.
func TestSizes(t *testing.T) {
	c := scalingConfig{N: 400, D: 8, Seed: 1}
	before := c.run()
	c.Normalised = true
	after := c.run()
	n, d := float64(c.N), float64(c.D)
	if math.Abs(before.Den/(n*(1+1/(2*d)))-1) > 0.01 {
		t.Errorf("denominator %g, expected %g", before.Den, n*(1+1/(2*d)))
	}
	for what, x := range map[string][2]float64{
		"(K⊠K)ᵀV":     {after.Moments, before.Moments * math.Sqrt(d) / n},
		"(QKᵀ)²V":     {after.Second, before.Second * d / n},
		"QKᵀV":        {after.First, before.First * math.Sqrt(d) / n},
		"denominator": {after.Den, before.Den * d / n},
		"Y":           {after.Output, before.Output * math.Sqrt(n/d)},
	} {
		if math.Abs(x[0]/x[1]-1) > 1e-9 {
			t.Errorf("%s is %g, expected %g", what, x[0], x[1])
		}
	}
}

func TestTimings(t *testing.T) {
	list := []timing{{Curve: "a", N: 10, Ms: 1}, {Curve: "a", N: 20, Ms: 4}, {Curve: "a", N: 40}, {Curve: "b", N: 10, Ms: 2}, {Curve: "b", N: 20, Ms: 2}, {Curve: "b", N: 40, Ms: 2}}
	if n, found := crossing(list, "a", "b"); !found || math.Abs(n-10*math.Sqrt2) > 1e-9 {
		t.Errorf("crossing at %g, %t", n, found)
	}
	if _, found := crossing(list, "b", "a"); found {
		t.Error("a falls behind b")
	}
	if _, found := findTiming(list, "a", 40); found {
		t.Error("a timing that was not measured")
	}
}

func TestCrossingIsBeyondTheSharedLengths(t *testing.T) {
	list := []timing{{Curve: "softmax", N: 4096, Ms: 40}, {Curve: "softmax", N: 8192, Ms: 160}, {Curve: "softmax", N: 16384},
		{Curve: "fastmax 2", N: 4096, Ms: 82}, {Curve: "fastmax 2", N: 8192, Ms: 164}, {Curve: "fastmax 2", N: 16384, Ms: 333}}
	r := new(Results)
	addResult(t, r, "d128", list)
	out, err := fig3Outcome(new(Options), r)
	if err != nil {
		t.Fatal(err)
	}
	if row := out.Tables[1].Rows[0]; row[1] != none || row[2] != "beyond 8192" {
		t.Errorf("row %q, want %s and beyond 8192", row, none)
	}
}

func TestScoresWithinTenPercentPass(t *testing.T) {
	out, c := new(Outcome), kernelCurves()
	out.scores(&c)
	for i, want := range []string{"-0.39 to 0.53", "-0.70 to 1.10"} {
		if row := out.Tables[0].Rows[i]; row[1] != want {
			t.Errorf("p = %s: %s, want %s", row[0], row[1], want)
		}
	}
}

// TestSoftmaxMatrix holds outputs and gradients against the catalogue's softmax.
func TestSoftmaxMatrix(t *testing.T) {
	const b, h, n, d = 2, 2, 33, 16
	key := rng.New(5)
	fill := func(i uint64) tensor.Heads {
		x := tensor.NewHeads(b, h, n, d)
		for j := range x.Data {
			x.Data[j] = float32(key.Fold(i).Normal(uint64(j)))
		}
		return x
	}
	c := &attention.Call{Q: fill(1), K: fill(2), V: fill(3)}
	dout := fill(4)
	tiled, err := mechanism.New("softmax", mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var results [2][]tensor.Heads
	for i, m := range []attention.Mechanism{tiled, headwise.New(softmaxMatrix{})} {
		var keep attention.Saved
		out := tensor.NewHeads(b, h, n, d)
		if err := m.Forward(out, c, &keep); err != nil {
			t.Fatal(err)
		}
		g := &attention.Grads{DQ: tensor.NewHeads(b, h, n, d), DK: tensor.NewHeads(b, h, n, d), DV: tensor.NewHeads(b, h, n, d)}
		if err := m.Backward(g, dout, out, c, &keep); err != nil {
			t.Fatal(err)
		}
		results[i] = []tensor.Heads{out, g.DQ, g.DK, g.DV}
	}
	for i, name := range []string{"out", "dq", "dk", "dv"} {
		for j, x := range results[0][i].Data {
			if y := results[1][i].Data[j]; math.Abs(float64(x-y)) > 1e-5 {
				t.Fatalf("%s: %g, softmax has %g", name, y, x)
			}
		}
	}
	c.KeyLens = []int64{n, n - 1}
	if err := headwise.New(softmaxMatrix{}).Forward(results[0][0], c, nil); err == nil {
		t.Error("no error for lengths of keys")
	}
}
