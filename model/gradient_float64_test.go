//go:build float64

package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// slope is the derivative of the loss along a direction of p, by a central
// difference of fourth order. A loss of about 3 is rounded by 2⁻⁵², so the
// slope is known to about 1e-15/step; its truncation, of order step⁴, is far
// below.
func slope(t testing.TB, m *Model, b *Batch, p *param.Param, direction []float64) float64 {
	const step = 1e-5
	start := slices.Clone(p.Data)
	at := func(x float64) float64 {
		for i, d := range direction {
			p.Data[i] = start[i] + x*step*d
		}
		return loss(t, m, b)
	}
	s := (8*(at(1)-at(-1)) - (at(2) - at(-2))) / (12 * step)
	copy(p.Data, start)
	return s
}

// wrong returns the error of a gradient along directions of length 1, in units of the
// tolerance of slope. A larger loss has a larger rounding error.
func wrong(got, want, norm, loss float64) float64 {
	return math.Abs(got-want) / (2e-10*max(1, loss/3) + 2e-9*norm)
}

func dot(x, y []float64) (s float64) {
	for i := range x {
		s += x[i] * y[i]
	}
	return s
}

// againstSlopes holds every weight's gradient against slopes along random
// directions, in which every element has a part.
func againstSlopes(t *testing.T, m *Model, b *Batch) {
	t.Helper()
	l := loss(t, m, b)
	if m.config.Loss == Logistics {
		l *= 2 // a difference of two rounded logarithms
	}
	backward(t, m)
	for i, p := range m.Params().All() {
		for try := range 2 {
			direction := make([]float64, len(p.Data))
			for j := range direction {
				direction[j] = rng.New(uint64(try)).Fold(uint64(i)).Normal(uint64(j))
			}
			length := math.Sqrt(dot(direction, direction))
			for j := range direction {
				direction[j] /= length
			}
			got, want := dot(p.Grad, direction), slope(t, m, b, p, direction)
			if r := wrong(got, want, math.Sqrt(dot(p.Grad, p.Grad)), l); !(r <= 1) {
				t.Errorf("%s: slope is %v, want %v (%.3g times what is allowed)", p.Name, got, want, r)
			}
		}
	}
}

func TestGradients(t *testing.T) {
	for name, c := range cases() {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s padded=%t", name, padded), func(t *testing.T) {
				t.Parallel()
				againstSlopes(t, made(t, c), batch(c, 1, 2, 5, padded))
			})
		}
	}
}

// In one model every element is held against its own slope.
func TestGradientOfEveryElement(t *testing.T) {
	c := tiny(Decoder, "taylorshift")
	m := made(t, c)
	b := batch(c, 1, 2, 5, true)
	l := loss(t, m, b)
	backward(t, m)
	for _, p := range m.Params().All() {
		norm := math.Sqrt(dot(p.Grad, p.Grad))
		direction := make([]float64, len(p.Data))
		for i, got := range p.Grad {
			direction[i] = 1
			want := slope(t, m, b, p, direction)
			direction[i] = 0
			if r := wrong(got, want, norm, l); !(r <= 1) {
				t.Errorf("%s[%d]: slope is %v, want %v (%.3g times what is allowed)", p.Name, i, got, want, r)
			}
		}
	}
}

func TestBackwardAdds(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	m := made(t, c)
	b := batch(c, 1, 2, 5, false)
	loss(t, m, b)
	backward(t, m)
	once := map[string][]float64{}
	for _, p := range m.Params().All() {
		once[p.Name] = append([]float64{}, p.Grad...)
	}
	loss(t, m, b)
	if err := m.Backward(0.5); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params().All() {
		for i, g := range p.Grad {
			if d := math.Abs(g - 1.5*once[p.Name][i]); !(d <= 1e-14*(1+check.MaxAbs(once[p.Name]))) {
				t.Fatalf("%s[%d] is %v, once it was %v", p.Name, i, g, once[p.Name][i])
			}
		}
	}
	if err := m.Backward(1); err == nil {
		t.Error("a second Backward is accepted")
	}
}

// A sequence without a valid position is pooled to zeros, and the rest of the batch
// does not mind.
func TestEmptySequences(t *testing.T) {
	for _, name := range []string{"mean", "cls", "last encoder", "net of classes"} {
		c := cases()[name]
		b := batch(c, 1, 2, 4, false)
		b.Lens = []int64{0, 4}
		m := made(t, c)
		got := logits(t, m, b)
		for i, x := range got {
			if x-x != 0 {
				t.Fatalf("%s: logit %d is %v", name, i, x)
			}
		}
		againstSlopes(t, m, b)
	}
}

func TestGradientsUnderDropout(t *testing.T) {
	for _, c := range []Config{
		dropped(Decoder, "fastmax", ""), dropped(Encoder, "softmax", "1d"), dropped(EncoderDecoder, "taylorshift", "standard"), dropped(EncoderDecoder, "fastmax", "quadratic"),
	} {
		b := batch(c, 1, 2, 5, true)
		b.Key = rng.New(9)
		againstSlopes(t, made(t, c), b)
	}
	// Dropout of branch outputs, alone and with attention dropout.
	all := cases()
	for _, c := range []Config{
		tiny(Decoder, "fastmax"), dropped(EncoderDecoder, "softmax", "1d"), all["post-norm conv"], all["crate"], all["cls numbers"],
	} {
		c.Dropout = 0.3
		b := batch(c, 1, 2, 5, true)
		b.Key = rng.New(9)
		againstSlopes(t, made(t, c), b)
	}
}

// The gradient from logits is the gradient of their weighted sum.
func TestGradientsFromLogits(t *testing.T) {
	for _, name := range []string{"bert", "bert classifier", "modernbert mean", "gemma", "bart", "vit"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, true)
		dlogits := make([]float64, c.Rows(b.B, b.N)*c.outputSize())
		for i := range dlogits {
			dlogits[i] = rng.New(7).Normal(uint64(i))
		}
		if err := m.BackwardLogits(dlogits, 1); err == nil {
			t.Errorf("%s: BackwardLogits is accepted without Outputs", name)
		}
		if _, err := m.Outputs(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := m.BackwardLogits(dlogits, 1); err != nil {
			t.Fatal(err)
		}
		for i, p := range m.Params().All() {
			start, direction := slices.Clone(p.Data), make([]float64, len(p.Data))
			for j := range direction {
				direction[j] = rng.New(8).Fold(uint64(i)).Normal(uint64(j)) / float64(len(direction))
			}
			at := func(x float64) float64 {
				for j, d := range direction {
					p.Data[j] = start[j] + x*d
				}
				return dot(logits(t, m, b), dlogits)
			}
			const h = 1e-3
			want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			copy(p.Data, start)
			if got := dot(p.Grad, direction); !(math.Abs(got-want) <= 1e-6*(1+math.Abs(want))) {
				t.Errorf("%s %s: slope is %v, want %v", name, p.Name, got, want)
			}
		}
	}
}

// A mask of keys at the end is the same as lengths; masked positions change nothing.
func TestKeyMaskIsNotSeen(t *testing.T) {
	for _, name := range []string{"bert", "bert classifier", "modernbert", "modernbert mean", "mpnet", "vit", "mistral", "llama"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 3, 6, true)
		masked := *b
		masked.Lens = nil
		for i := range b.B {
			for j := range b.N {
				masked.KeyMask = append(masked.KeyMask, int64(j) < b.Lens[i])
			}
		}
		if got, want := loss(t, m, &masked), loss(t, m, b); !(math.Abs(got-want) <= 1e-13*want) {
			t.Errorf("%s: loss is %v with a mask, %v with lengths", name, got, want)
		}
		masked.KeyMask[b.N+1] = false // in the middle of row 1
		againstSlopes(t, m, &masked)
		want := loss(t, m, &masked)
		if c.Inputs > 0 {
			masked.Values = slices.Clone(b.Values)
			masked.Values[(b.N+1)*c.Inputs]++
		} else {
			masked.Tokens = slices.Clone(b.Tokens)
			masked.Tokens[b.N+1] = (b.Tokens[b.N+1] + 1) % int32(c.Vocab)
		}
		if got := loss(t, m, &masked); got != want {
			t.Errorf("%s: a masked token changes the loss from %v to %v", name, want, got)
		}
	}
}

// Positions in order are the default, and others choose rows of the table.
func TestPositionsChooseRows(t *testing.T) {
	c := cases()["roberta"]
	m, b := made(t, c), batch(c, 1, 2, 5, false)
	want := loss(t, m, b)
	b.Positions = []int32{2, 3, 4, 5, 6, 2, 3, 4, 5, 6}
	if got := loss(t, m, b); got != want {
		t.Errorf("loss is %v, want %v", got, want)
	}
	b.Positions = []int32{9, 1, 1, 0, 3, 7, 7, 2, 4, 5}
	if got := loss(t, m, b); got == want {
		t.Error("positions change nothing")
	}
	againstSlopes(t, m, b)
	b.Positions[3] = 10
	if _, err := m.Forward(t.Context(), b); err == nil || err.Error() != "Positions: row 0, position 3 is 10, the learned table has 10" {
		t.Errorf("error is %v", err)
	}
	b = batch(c, 1, 1, 9, false)
	if _, err := m.Forward(t.Context(), b); err == nil || err.Error() != "positions: 9 are needed, the learned table has 8" {
		t.Errorf("error is %v", err)
	}
}

// Another loss than the head's: a weighted sum of the outputs.
func TestGradientsFromOutputs(t *testing.T) {
	for _, name := range []string{"encoder softmax", "post-norm", "mamba-2"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, false)
		dy := tensor.NewMat(b.B*b.N, c.Width)
		for i := range dy.Data {
			dy.Data[i] = rng.New(7).Normal(uint64(i))
		}
		f := func() (sum float64) {
			y, err := m.Outputs(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			return dot(y.Data, dy.Data)
		}
		f()
		if err := m.BackwardOutputs(dy, 1); err != nil {
			t.Fatal(err)
		}
		if err := m.BackwardOutputs(dy, 1); err == nil {
			t.Errorf("%s: a second BackwardOutputs is accepted", name)
		}
		if err := m.Backward(1); err == nil {
			t.Errorf("%s: Backward is accepted without a loss", name)
		}
		for i, p := range m.Params().All() {
			start, direction := slices.Clone(p.Data), make([]float64, len(p.Data))
			for j := range direction {
				direction[j] = rng.New(8).Fold(uint64(i)).Normal(uint64(j)) / float64(len(direction))
			}
			at := func(x float64) float64 {
				for j, d := range direction {
					p.Data[j] = start[j] + x*d
				}
				return f()
			}
			const h = 1e-3
			want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			copy(p.Data, start)
			if got := dot(p.Grad, direction); !(max(got-want, want-got) <= 1e-6*(1+max(want, -want))) {
				t.Errorf("%s %s: slope is %v, want %v", name, p.Name, got, want)
			}
		}
		f()
		if err := m.BackwardOutputs(tensor.NewMat(3, c.Width), 1); err == nil {
			t.Errorf("%s: a gradient of 3 rows is accepted", name)
		}
	}
}
