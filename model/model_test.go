package model

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func logits[T tensor.Float](t testing.TB, m *modelOf[T], b *Batch) []T {
	t.Helper()
	c := m.Config()
	x := make([]T, c.Rows(b.B, b.N)*c.outputSize())
	if err := m.Logits(t.Context(), b, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// grads returns the gradients of all weights.
func grads[T tensor.Float](t testing.TB, m *modelOf[T], b *Batch) [][]T {
	t.Helper()
	m.Params().ZeroGrad()
	loss(t, m, b)
	backward(t, m)
	var all [][]T
	for _, p := range m.Params().All() {
		all = append(all, slices.Clone(p.Grad))
	}
	return all
}

func widen[T tensor.Float](x []T) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// copyWeights gives a model the weights of one in double precision, rounded,
// and rounds those as well.
func copyWeights(to *modelOf[float32], from *modelOf[float64]) {
	for i, p := range from.Params().All() {
		q := to.Params().All()[i]
		for j := range p.Data {
			q.Data[j] = float32(p.Data[j])
			p.Data[j] = float64(q.Data[j])
		}
	}
}

func TestSinglePrecisionFollowsDouble(t *testing.T) {
	for name, c := range cases() {
		m64 := made[float64](t, c)
		m32, err := newModel[float32](c, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		copyWeights(m32, m64)
		b := batch(c, 2, 4, 6, true)
		want, got := loss(t, m64, b), loss(t, m32, b)
		// The loss is within 10 roundings. A gradient's errors add up along both
		// ways through every layer, and norms of short rows enlarge them: 330 have
		// been seen.
		if d := math.Abs(got - want); !(d <= 16*0x1p-24*want) {
			t.Errorf("%s: loss is %v, in double precision %v", name, got, want)
		}
		g64, g32 := grads(t, m64, b), grads(t, m32, b)
		for i, want := range g64 {
			const limit = 512 * 0x1p-24
			size := max(check.MaxAbs(want), 1e-2)
			if r := check.ErrorRatio(g32[i], want, limit*size); !(r <= 1) {
				t.Errorf("%s: gradient of %s errs by %.3g of its largest", name, m64.Params().All()[i].Name, r*limit)
			}
		}
	}
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

func TestLaterTokensChangeNothing(t *testing.T) {
	for name, c := range cases() {
		if !c.IsCausal() || c.Pool != "" {
			continue
		}
		c.Context = 40
		if c.PositionTable > 0 {
			c.PositionTable = 44
		}
		m := made[float32](t, c)
		b := batch(c, 3, 2, 37, false)
		before := logits(t, m, b)
		for _, at := range []int{1, 16, 36} {
			changed := *b
			changed.Tokens, changed.Values = slices.Clone(b.Tokens), slices.Clone(b.Values)
			for row := range b.B {
				if c.Inputs > 0 {
					changed.Values[(row*b.N+at)*c.Inputs]++
					continue
				}
				id := &changed.Tokens[row*b.N+at]
				*id = (*id + 1) % int32(c.Vocab)
			}
			after := logits(t, m, &changed)
			for row := range b.B {
				outputs := c.outputSize()
				lo, hi := row*b.N*outputs, (row*b.N+at)*outputs
				if !slices.Equal(before[lo:hi], after[lo:hi]) {
					t.Errorf("%s: token %d changes logits before it", name, at)
				}
				if slices.Equal(before[hi:hi+outputs], after[hi:hi+outputs]) {
					t.Errorf("%s: token %d does not change its own logits", name, at)
				}
			}
		}
	}
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
		m := made[float32](t, c)
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

// Tokens beyond a row's length are as if they were not there.
func TestPaddingIsNotSeen(t *testing.T) {
	for name, c := range cases() {
		m := made[float64](t, c)
		size := max(c.Parts, 1)
		b := batch(c, 5, size, 6, false)
		b.Lens = slices.Repeat([]int64{4}, size)
		short := part(c, b, 0, size, 4)
		if c.Loss == CrossEntropy {
			short.Targets = b.Targets[:c.Rows(size, 4)]
		} else {
			short.Numbers = b.Numbers[:c.Rows(size, 4)*c.Numbers()]
		}
		if b.SourceN > 0 {
			b.SourceLens = []int64{3}
			short.Source, short.SourceN = b.Source[:3], 3
		}
		want, got := loss(t, m, short), loss(t, m, b)
		// Another length may run in another form, whose bits differ.
		if d := math.Abs(got - want); !(d <= 1e-13*want) {
			t.Errorf("%s: loss is %v, without padding %v", name, got, want)
		}
	}
}

func TestThreadsDoNotChangeBits(t *testing.T) {
	defer par.SetThreads(0)
	for _, mechanism := range []string{"softmax", "fastmax"} {
		for _, kind := range []Kind{Decoder, EncoderDecoder} {
			c := tiny(kind, mechanism)
			c.Vocab, c.Width, c.Hidden, c.Context, c.Heads = 67, 60, 0, 70, 4
			run := func(threads int) (float64, [][]float32) {
				par.SetThreads(threads)
				m := made[float32](t, c)
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

// textbookLoss returns what output i of a batch loses, and whether it is counted.
func textbookLoss(c Config, row []float64, b *Batch, i int) (loss float64, counted bool) {
	if c.Loss == CrossEntropy {
		if b.Targets[i] < 0 {
			return 0, false
		}
		var all float64
		for _, l := range row {
			all += math.Exp(l)
		}
		return math.Log(all) - row[b.Targets[i]], true
	}
	n := 0
	for j, x := range b.Numbers[i*c.Numbers():][:c.Numbers()] {
		want := float64(x)
		if math.IsNaN(want) {
			continue
		}
		n++
		if c.Loss == Squared {
			loss += (row[j] - want) * (row[j] - want)
			continue
		}
		parts := len(row) / 3
		var all, joint float64
		for k := range parts {
			f := func(x float64) float64 { return 1 / (1 + math.Exp(-(x-row[parts+k])*math.Exp(-row[2*parts+k]))) }
			at := want/127.5 - 1
			p := f(at+1./255) - f(at-1./255)
			switch want {
			case 0:
				p = f(at + 1./255)
			case 255:
				p = 1 - f(at-1./255)
			}
			all += math.Exp(row[k])
			joint += math.Exp(row[k]) * p
		}
		loss -= math.Log(joint / all)
	}
	return loss / float64(max(n, 1)), n > 0
}

func TestLossesAreThoseOfTheLogits(t *testing.T) {
	for name, c := range cases() {
		m := made[float64](t, c)
		b := batch(c, 7, 4, 6, true)
		x := logits(t, m, b)
		got := make([]float64, c.Rows(b.B, b.N))
		want := loss(t, m, b)
		if err := m.Losses(t.Context(), b, got); err != nil {
			t.Fatal(err)
		}
		var sum float64
		var counted int
		for i := range got {
			padded := c.Pool == "" && int64(i%b.N) >= b.Lens[i/b.N]
			row := x[i*c.outputSize():][:c.outputSize()]
			l, seen := textbookLoss(c, row, b, i)
			if padded || !seen {
				if got[i] != 0 {
					t.Errorf("%s: output %d is not counted, its loss is %v", name, i, got[i])
				}
				continue
			}
			if !(math.Abs(got[i]-l) <= 1e-13*(1+l)) {
				t.Errorf("%s: loss of output %d is %v, of its logits %v", name, i, got[i], l)
			}
			sum += got[i]
			counted++
		}
		if mean := sum / float64(counted); !(math.Abs(mean-want) <= 1e-14*want) {
			t.Errorf("%s: mean loss is %v, Forward returned %v", name, mean, want)
		}
		// Inference between Forward and Backward leaves no trace.
		backward(t, m)
		between := slices.Clone(m.Params().All()[0].Grad)
		if !slices.Equal(between, grads(t, m, b)[0]) {
			t.Errorf("%s: inference changes the gradient", name)
		}
	}
}

// A head with logits for more rows than are made at a time.
func TestLongHead(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	c.Vocab, c.Context, c.Positions = headElements/headRows+1, 70, NoPosition
	m := made[float32](t, c)
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
		m, err := newModel[float32](c, rng.New(3))
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
		if got, want := c.Params(), made[float32](t, c).Params().Size(); got != want {
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
		{d, func(b *Batch) { b.Tokens[6] = 11 }, "tokens: row 1, position 1 is 11, the vocabulary has 11"},
		{d, func(b *Batch) { b.Tokens[0] = -1 }, "tokens: row 0, position 0 is -1"},
		{d, func(b *Batch) { b.Targets[9] = 12 }, "targets: row 1, position 4 is 12, the vocabulary has 11"},
		{d, func(b *Batch) { b.Targets[9] = -2 }, "targets: row 1, position 4 is -2"},
		{d, func(b *Batch) { b.Tokens = b.Tokens[1:] }, "tokens: has 9 elements, B·N is 2·5"},
		{d, func(b *Batch) { b.Targets = nil }, "targets: has 0 elements, B·N is 2·5"},
		{d, func(b *Batch) { b.Lens = []int64{1} }, "lens: has 1 elements, B is 2"},
		{d, func(b *Batch) { b.Lens = []int64{1, 6} }, "lens: row 1 is 6, N is 5"},
		{d, func(b *Batch) { b.Lens = []int64{0, 0} }, "targets: none of them is counted"},
		{d, func(b *Batch) { b.B = 0 }, "batch: 0 sequences of 5 tokens"},
		{d, func(b *Batch) { b.B, b.N = math.MaxInt/2+1, 4 }, fmt.Sprintf("batch: %d sequences of 4 tokens are beyond any memory", math.MaxInt/2+1)},
		{d, func(b *Batch) { b.SourceN = 3 }, "source: 0 tokens, but kind decoder has no source"},
		{d, func(b *Batch) { *b = *batch(d, 1, 1, 8, false) }, "positions: 8 are needed, the learned table has 7"},
		{e, func(b *Batch) { b.Source[1] = 11 }, "source: row 0, position 1 is 11, the vocabulary has 11"},
		{e, func(b *Batch) { b.Source = nil }, "source: has 0 elements, B·N is 2·6"},
		{e, func(b *Batch) { b.SourceN = 0 }, "source: 2 sequences of 0 tokens"},
		{e, func(b *Batch) { b.SourceLens = []int64{7, 1} }, "source lens: row 0 is 7, N is 6"},
		{e, func(b *Batch) { *b = *batch(e, 1, 1, 7, false) }, "source: positions: 8 are needed, the learned table has 7"},
	} {
		b := batch(x.c, 1, 2, 5, false)
		x.change(b)
		m := made[float32](t, x.c)
		_, err := m.Forward(t.Context(), b)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want one with %q", err, x.want)
		}
		if err := m.Backward(1); err == nil {
			t.Errorf("%s: Backward is accepted all the same", x.want)
		}
	}
	m := made[float32](t, d)
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

// elements counts what a trace holds. The views of a call, of its gradients and
// its input are of memory counted elsewhere; the sums of keys that attention.Saved holds in its
// field Moments depend on the form that is chosen, not on the tokens. What two fields share counts
// once.
func elements(v reflect.Value) int { return unseenElements(v, map[uintptr]bool{}) }

func unseenElements(v reflect.Value, seen map[uintptr]bool) (n int) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			return unseenElements(v.Elem().Elem(), seen) // a trace, by its pointer
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "call" && name != "grads" && name != "in" && name != "source" && name != "Moments" {
				n += unseenElements(v.Field(i), seen)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Float32 {
			if v.Kind() == reflect.Slice && v.Len() > 0 {
				if seen[v.Pointer()] {
					return 0
				}
				seen[v.Pointer()] = true
			}
			return v.Len()
		}
		for i := range v.Len() {
			n += unseenElements(v.Index(i), seen)
		}
	}
	return n
}

// The table of the package's comment.
func TestEveryActivationIsAccountedFor(t *testing.T) {
	for name, c := range cases() {
		m := made[float32](t, c)
		b := batch(c, 1, 4, 6, false)
		loss(t, m, b)
		kept := elements(reflect.ValueOf(m.train.main)) + elements(reflect.ValueOf(m.train.encoder)) +
			elements(reflect.ValueOf(m.train.net)) + elements(reflect.ValueOf(m.train.pool))
		// Pooling and the units before the head.
		rows := c.Rows(b.B, b.N)
		kept -= rows * c.HeadHidden
		if c.HeadActivation != "" && c.HeadActivation != ReLU {
			kept -= rows * c.HeadHidden
		}
		if c.HeadNorm {
			kept -= rows * (c.HeadHidden + 2)
		}
		if c.Pool != "" {
			kept -= b.B * c.pooledWidth() / max(c.Parts*c.Parts, 1)
		}
		if c.Parts == 2 {
			kept -= b.B / 2 * c.pooledWidth()
		}
		if c.Kind == Convolutional {
			want := b.B * b.N * (c.Conv*c.Inputs + (c.Layers-2)*c.Conv*c.Width + (c.Layers-1)*c.Width + c.Conv*c.Width)
			if c.Mechanism != "" {
				want += b.B * b.N * (2*c.Width + 2*c.kvHeads()*c.headWidth() + c.Heads + c.Width)
			}
			if kept != want {
				t.Errorf("%s: %d elements are kept, the table has %d", name, kept, want)
			}
			continue
		}
		b.N += c.frontPositions()
		w, q, kv := c.Width, c.Heads*c.headWidth(), 2*c.kvHeads()*c.headWidth()
		h := q + c.Heads
		norm := 2*w + 2
		units := 2
		if c.mlpKind().gated {
			units = 3
		}
		layer := norm + q + h + kv + norm + units*c.hiddenWidth()
		if c.QKNorm {
			layer += q + kv/2 + 2*(c.Heads+c.kvHeads())
		}
		if c.AttentionNorm {
			layer += q + 2*c.Heads
		}
		if c.BranchNorm {
			layer += 2 * (w + 2)
		}
		if c.Set["window"] != "" {
			layer += q + 7*c.Heads
		}
		if c.Conv > 0 {
			layer += 2 * w
		}
		entry := 0
		if c.EntryNorm {
			entry = w + 2
		}
		want := b.B * b.N * (c.Layers*layer + norm + entry)
		// Whole heads have no denominators, but what their mechanism keeps.
		switch c.Mechanism {
		case "fourier":
			want -= b.B * b.N * c.Layers * c.Heads
		case "mamba-2": // in place of queries, keys, values, outputs and denominators
			state, groups := 3, 1
			if c.Set["groups"] != "" {
				state, groups = 4, 3
			}
			inner := 2 * w
			want += b.B * b.N * c.Layers * (7*inner + 6*groups*state + 4*c.Heads - w - h - kv)
		case "crate": // one projection, and a step as wide as the model
			want += b.B * b.N * c.Layers * (2*w - 2*c.hiddenWidth() - kv)
		case "retnet": // values, gates, outputs and what is projected are wider; rotations are of places
			inner := 2 * w
			if c.Set["expand"] == "1" {
				inner = w
			}
			want += b.B*b.N*c.Layers*(4*inner-kv) + b.N*c.Layers*2*(c.headWidth()/2)
		case "hyena": // two long convolutions; filters are of places
			want += b.B*b.N*c.Layers*(10*w-w-h-kv) + b.N*c.Layers*(3+3*2*4+2*w)
		case "linformer": // mixtures of keys and values, and a logarithm for each query
			want += b.B * c.Layers * c.Heads * 3 * 2 * c.headWidth()
		}
		if c.hasDecay() {
			want += b.B * b.N * c.Layers * c.kvHeads()
		}
		if c.Kind == EncoderDecoder {
			want += b.B * b.N * c.Layers * (norm + w + h)                                   // cross-attention
			want += b.B * b.SourceN * (c.sourceLayers()*layer + c.Layers*kv + norm + entry) // encoder, and keys of the source
		}
		if kept != want {
			t.Errorf("%s: %d elements are kept, the table has %d", name, kept, want)
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
			m := made[float32](t, c)
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
