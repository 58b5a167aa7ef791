package model

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
)

func logits(t testing.TB, m *Model, b *Batch) []float {
	t.Helper()
	c := m.Config()
	x := make([]float, c.Rows(b.B, b.N)*c.outputSize())
	if err := m.Logits(t.Context(), b, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// grads returns the gradients of all weights.
func grads(t testing.TB, m *Model, b *Batch) [][]float {
	t.Helper()
	m.Params().ZeroGrad()
	loss(t, m, b)
	backward(t, m)
	var all [][]float
	for _, p := range m.Params().All() {
		all = append(all, slices.Clone(p.Grad))
	}
	return all
}

func widen(x []float) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// directions is the number of directions, all elements of a gradient by random signs, along which single and
// double precision are compared.
const directions = 4

// signedSums returns the sums of g by random signs.
func signedSums(g []float) []float64 {
	sums := make([]float64, directions)
	for k := range sums {
		key := rng.New(23).Fold(uint64(k))
		for i, x := range g {
			sums[k] += (2*float64(key.Uint64(uint64(i))&1) - 1) * float64(x)
		}
	}
	return sums
}

// The numbers of double precision are in testdata/double: of each case the loss, and of each gradient its
// signed sums.
//
// Errors e of a gradient's n elements, by random signs, have a sum whose square is |e|² in the mean, which is n
// times the mean of their squares. The mean of K = 4 such sums' squares exceeds t² times that with a probability
// of at most (t²·exp(1-t²))^(K/2), since such sums are sub-Gaussian: one in 10⁷ for t = 3.4.
func TestSinglePrecisionFollowsDouble(t *testing.T) {
	all := cases()
	names := slices.Sorted(maps.Keys(all))
	type result struct {
		loss  float64
		grads [][]float
		names []string
	}
	var results []result
	var numbers []float64
	for _, name := range names {
		m, b := madeSingle(t, all[name]), batch(all[name], 2, 4, 6, true)
		r := result{loss: loss(t, m, b), grads: grads(t, m, b)}
		numbers = append(numbers, r.loss)
		for i, g := range r.grads {
			r.names = append(r.names, m.Params().All()[i].Name)
			numbers = append(numbers, signedSums(g)...)
		}
		results = append(results, r)
	}
	want := double(t, "models", numbers)
	u := check.UnitRoundoff[float]()
	worst := 0.0
	for n, r := range results {
		// The loss is within 10 roundings. A gradient's errors add up along both
		// ways through every layer, and norms of short rows enlarge them. Of a single
		// element 330 roundings of the largest have been seen; the root of the mean
		// square is taken to be 128, of which sums have shown up to a third.
		if d := math.Abs(r.loss - want[0]); !(d <= 16*u*want[0]) {
			t.Errorf("%s: loss is %v, in double precision %v", names[n], r.loss, want[0])
		}
		want = want[1:]
		for i, g := range r.grads {
			var squares float64
			for k, x := range signedSums(g) {
				squares += (x - want[k]) * (x - want[k])
			}
			limit := 3.4 * 128 * u * max(check.MaxAbs(g), 1e-2)
			off := math.Sqrt(squares/directions/max(1, float64(len(g)))) / limit
			if worst = max(worst, off); !(off <= 1) {
				t.Errorf("%s: signed sums of the gradient of %s are off by %.3g limits", names[n], r.names[i], off)
			}
			want = want[directions:]
		}
	}
	t.Logf("errors are at most %.3g limits", worst)
}

func decoders() map[string]Config {
	all := cases()
	for name, c := range all {
		if c.Kind != Decoder || c.Inputs > 0 || c.Pool != "" {
			delete(all, name)
		}
	}
	return all
}

// part returns the first n positions of some sequences of a batch, without their
// targets.
func part(c Config, b *Batch, lo, hi, n int) *Batch {
	x := &Batch{B: hi - lo, N: n, SourceN: b.SourceN, Source: b.Source[lo*b.SourceN : hi*b.SourceN]}
	if b.SourceN == 0 {
		x.Source = nil
	}
	for i := lo; i < hi; i++ {
		if c.Inputs > 0 {
			x.Values = append(x.Values, b.Values[i*b.N*c.Inputs:][:n*c.Inputs]...)
		} else {
			x.Tokens = append(x.Tokens, b.Tokens[i*b.N:][:n]...)
		}
		if b.Types != nil {
			x.Types = append(x.Types, b.Types[i*b.N:][:n]...)
		}
	}
	return x
}

func TestSequencesDoNotMeet(t *testing.T) {
	for name, c := range cases() {
		m := made(t, c)
		b := batch(c, 4, 4, 6, true)
		all := logits(t, m, b)
		size := max(c.Parts, 1) // sequences that may meet
		for row := 0; row < b.B; row += size {
			one := part(c, b, row, row+size, b.N)
			one.Lens = b.Lens[row:][:size]
			if b.SourceN > 0 {
				one.SourceLens = b.SourceLens[row:][:1]
			}
			n := c.Rows(size, b.N) * c.outputSize()
			if !slices.Equal(logits(t, m, one), all[row/size*n:][:n]) {
				t.Errorf("%s: logits of row %d depend on the others", name, row)
			}
		}
	}
}

// A head with logits for more rows than are made at a time.
func TestLongHead(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	c.Vocab, c.Context, c.Positions = headElements/headRows+1, 70, NoPosition
	m := made(t, c)
	b := batch(c, 8, 1, headRows+3, false)
	all := make([]float64, b.N)
	if err := m.Losses(t.Context(), b, all); err != nil {
		t.Fatal(err)
	}
	if len(m.head.logits) >= b.N*c.Vocab {
		t.Fatal("logits of all rows are held at once")
	}
	first := *b
	first.N = 10
	first.Tokens, first.Targets = b.Tokens[:10], b.Targets[:10]
	few := make([]float64, 10)
	if err := m.Losses(t.Context(), &first, few); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(few, all[:10]) {
		t.Error("losses depend on the rows that follow")
	}
}

func TestLearnsABatchByHeart(t *testing.T) {
	for _, c := range []Config{
		tiny(Decoder, "softmax"), tiny(Decoder, "fastmax"), tiny(Encoder, "taylorshift"), tiny(EncoderDecoder, "linear"),
	} {
		m, err := New(c, rng.New(3))
		if err != nil {
			t.Fatal(err)
		}
		b := batch(c, 9, 2, 6, false)
		adam := optim.NewAdamW(m.Params())
		first := loss(t, m, b)
		if d := math.Abs(first - math.Log(float64(c.Vocab))); d > 0.05 {
			t.Errorf("%s %s: the first loss is %v, of equal chances %v", c.Kind, c.Mechanism, first, math.Log(float64(c.Vocab)))
		}
		for range 150 {
			m.Params().ZeroGrad()
			loss(t, m, b)
			backward(t, m)
			adam.Step(0.01, optim.ClipFactor(optim.GradNorm(m.Params()), 1))
		}
		if last := loss(t, m, b); !(last < first/10) {
			t.Errorf("%s %s: the loss falls from %v to %v only", c.Kind, c.Mechanism, first, last)
		}
	}
}

func TestParamsAreCounted(t *testing.T) {
	for name, c := range cases() {
		if got, want := c.Params(), made(t, c).Params().Size(); got != want {
			t.Errorf("%s: %d weights are counted, the model has %d", name, got, want)
		}
	}
}

// Of a wide model on short sequences nearly all is 6 operations a weight and
// token.
func TestTrainFLOPs(t *testing.T) {
	c := Config{Kind: Decoder, Vocab: 100, Layers: 12, Heads: 16, Width: 1024, Context: 8, Positions: NoPosition, Mechanism: "softmax", Tied: true}
	rule := 6 * float64(c.Params())
	if r := c.TrainFLOPs(1) / rule; r < 0.999 || r > 1.01 {
		t.Errorf("%v of the rule", r)
	}
	if one, many := c.TrainFLOPs(1), c.TrainFLOPs(1e12); many != one*1e12 {
		t.Errorf("a token takes %v, 1e12 take %v", one, many)
	}
	e := c
	e.Kind = EncoderDecoder
	// Twice the layers, and cross-attention: a third more of those.
	if r := e.TrainFLOPs(1) / rule; r < 2.32 || r > 2.36 {
		t.Errorf("encoder-decoder: %v of the decoder's rule", r)
	}
	long := c
	long.Context = 1024
	if long.TrainFLOPs(1) <= c.TrainFLOPs(1) {
		t.Error("a longer context costs nothing")
	}
}

func TestBatchesAreChecked(t *testing.T) {
	d, e := tiny(Decoder, "fastmax"), tiny(EncoderDecoder, "fastmax")
	for _, x := range []struct {
		c      Config
		change func(*Batch)
		want   string
	}{
		{d, func(b *Batch) { b.Tokens[6] = 11 }, "Tokens: row 1, position 1 is 11, the vocabulary has 11"},
		{d, func(b *Batch) { b.Tokens[0] = -1 }, "Tokens: row 0, position 0 is -1"},
		{d, func(b *Batch) { b.Targets[9] = 12 }, "Targets: row 1, position 4 is 12, the vocabulary has 11"},
		{d, func(b *Batch) { b.Targets[9] = -2 }, "Targets: row 1, position 4 is -2"},
		{d, func(b *Batch) { b.Tokens = b.Tokens[1:] }, "Tokens: has 9 elements, B·N is 2·5"},
		{d, func(b *Batch) { b.Targets = nil }, "Targets: has 0 elements, B·N is 2·5"},
		{d, func(b *Batch) { b.Lens = []int64{1} }, "Lens: has 1 elements, B is 2"},
		{d, func(b *Batch) { b.Lens = []int64{1, 6} }, "Lens: row 1 is 6, N is 5"},
		{d, func(b *Batch) { b.Lens = []int64{0, 0} }, "Targets: none of them is counted"},
		{d, func(b *Batch) { b.B = 0 }, "batch: 0 sequences of 5 tokens"},
		{d, func(b *Batch) { b.B, b.N = math.MaxInt/2+1, 4 }, fmt.Sprintf("batch: %d sequences of 4 tokens are beyond any memory", math.MaxInt/2+1)},
		{d, func(b *Batch) { b.SourceN = 3 }, "Source: 0 tokens, but Kind decoder has no source"},
		{d, func(b *Batch) { *b = *batch(d, 1, 1, 8, false) }, "positions: 8 are needed, the learned table has 7"},
		{e, func(b *Batch) { b.Source[1] = 11 }, "Source: row 0, position 1 is 11, the vocabulary has 11"},
		{e, func(b *Batch) { b.Source = nil }, "Source: has 0 elements, B·N is 2·6"},
		{e, func(b *Batch) { b.SourceN = 0 }, "Source: 2 sequences of 0 tokens"},
		{e, func(b *Batch) { b.SourceLens = []int64{7, 1} }, "SourceLens: row 0 is 7, N is 6"},
		{e, func(b *Batch) { *b = *batch(e, 1, 1, 7, false) }, "source: positions: 8 are needed, the learned table has 7"},
	} {
		b := batch(x.c, 1, 2, 5, false)
		x.change(b)
		m := made(t, x.c)
		_, err := m.Forward(t.Context(), b)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want one with %q", err, x.want)
		}
		if err := m.Backward(1); err == nil {
			t.Errorf("%s: Backward is accepted all the same", x.want)
		}
	}
	m := made(t, d)
	for name, f := range map[string]func() error{
		"Forward":      func() error { _, err := m.Forward(t.Context(), nil); return err },
		"Outputs":      func() error { _, err := m.Outputs(t.Context(), nil); return err },
		"Losses":       func() error { return m.Losses(t.Context(), nil, nil) },
		"Logits":       func() error { return m.Logits(t.Context(), nil, nil) },
		"Vectors":      func() error { _, _, err := m.Vectors(t.Context(), nil, nil); return err },
		"TrainDivided": func() error { _, err := m.TrainDivided(t.Context(), nil, nil, 1); return err },
	} {
		if err := f(); err == nil || err.Error() != "batch: it is nil" {
			t.Errorf("%s of no batch: error %v", name, err)
		}
	}
}

// Once the buffers are there a step allocates none: what is left is bookkeeping
// of the calls, as many pieces of it for a large model as for a small one.
func TestStepsKeepTheirMemory(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector makes pools forget at random")
	}
	defer par.SetThreads(0)
	par.SetThreads(1)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // pools forget what the collector takes
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))  // and have memory of each processor
	for _, mechanism := range []string{"softmax", "fastmax"} {
		var counts []uint64
		for _, size := range []int{1, 2} {
			c := tiny(Decoder, mechanism)
			c.Vocab, c.Width, c.Context, c.Heads, c.Positions = 67, 60*size, 256*size, 4, Rotary
			m := made(t, c)
			b := batch(c, 1, 1, c.Context, false)
			o := optim.NewAdamW(m.Params())
			step := func() {
				m.Params().ZeroGrad()
				loss(t, m, b)
				backward(t, m)
				o.Step(1e-3, optim.ClipFactor(optim.GradNorm(m.Params()), 1))
			}
			// Scratch memory that is lent from a pool grows once: the best of some
			// steps counts.
			bytes, count := uint64(math.MaxUint64), uint64(math.MaxUint64)
			for range 8 {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				step()
				runtime.ReadMemStats(&after)
				bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
				count = min(count, after.Mallocs-before.Mallocs)
			}
			if stream := uint64(c.Context * c.Width * 4); bytes >= stream { // bytes of one residual stream
				t.Errorf("%s: a step allocates %d bytes, a residual stream has %d", mechanism, bytes, stream)
			}
			counts = append(counts, count)
		}
		if counts[0] != counts[1] {
			t.Errorf("%s: %d allocations in a step of the small model, %d of the large one", mechanism, counts[0], counts[1])
		}
	}
}

func TestThreadsDoNotChangeBits(t *testing.T) {
	defer par.SetThreads(0)
	for _, mechanism := range []string{"softmax", "fastmax"} {
		for _, kind := range []Kind{Decoder, EncoderDecoder} {
			c := tiny(kind, mechanism)
			c.Vocab, c.Width, c.Hidden, c.Context, c.Heads = 67, 60, 0, 70, 4
			run := func(threads int) (float64, [][]float) {
				par.SetThreads(threads)
				m := made(t, c)
				b := batch(c, 6, 5, 67, false)
				l := loss(t, m, b)
				return l, grads(t, m, b)
			}
			l1, g1 := run(1)
			l2, g2 := run(2)
			if l1 != l2 {
				t.Errorf("%s %s: loss is %v with one thread, %v with two", kind, mechanism, l1, l2)
			}
			for i := range g1 {
				if !slices.Equal(g1[i], g2[i]) {
					t.Errorf("%s %s: gradient %d differs between one and two threads", kind, mechanism, i)
				}
			}
		}
	}
}
