//go:build float64

package model

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// lastLogits returns the logits of the last of the tokens [b·n] of each sequence.
func lastLogits(t *testing.T, m *Model, tokens []int32, b int) []float64 {
	t.Helper()
	n := len(tokens) / b
	all := make([]float64, len(tokens)*m.config.outputSize())
	x := &Batch{B: b, N: n, Tokens: tokens}
	if err := m.Logits(t.Context(), x, all); err != nil {
		t.Fatal(err)
	}
	return at(all, x, m.config.outputSize(), n-1)
}

// The logits of a session are those of the sequence that its tokens are, on both sides of the
// length at which rotations change, with the same bits for any pieces.
func TestSessionsGoBeyondTheContextOfShortRotations(t *testing.T) {
	c := longRope()
	m := made(t, c)
	const b, n = 2, 11
	tokens := tokensOf(c, 4, b*n)
	x := &Batch{B: b, N: n, Tokens: tokens}
	var last [n][]float64
	for _, cut := range [][]int{slices.Repeat([]int{1}, n), {n}, {6, 5}, {4, 3, 4}, {7, 1, 3}} {
		s, at := session(t, m, b), 0
		for _, size := range cut {
			got := step(t, s, x, at, at+size)
			if at += size; last[at-1] != nil && !slices.Equal(got, last[at-1]) {
				t.Errorf("pieces %v: logits of token %d depend on the pieces", cut, at-1)
			}
			last[at-1] = got
			var prefix []int32
			for row := range b {
				prefix = append(prefix, tokens[row*n:][:at]...)
			}
			want := lastLogits(t, m, prefix, b)
			if r := check.ErrorRatio(got, want, 64*0x1p-53*check.MaxAbs(want)); !(r <= 1) {
				t.Errorf("pieces %v: logits of token %d are %.3g limits from those of the sequence", cut, at-1, r)
			}
		}
	}
	short, long := made(t, with(c, func(c *Config) { c.RopeScaling.LongFactors = c.RopeScaling.ShortFactors })), last[n-1]
	if slices.Equal(lastLogits(t, short, tokens, b), long) {
		t.Error("the factors of long sequences change nothing")
	}

	// Snapshots, clones and groups on both sides.
	g := group(t, m)
	for _, from := range []int{3, 6, 8} {
		s := session(t, m, b)
		step(t, s, x, 0, from)
		data, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(data)) > s.SnapshotBytes() {
			t.Errorf("after %d tokens a snapshot has %d bytes, SnapshotBytes says %d", from, len(data), s.SnapshotBytes())
		}
		restored, err := m.RestoreSession(data)
		if err != nil {
			t.Fatal(err)
		}
		grouped, err := g.RestoreSession(data)
		if err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		var rest []int32
		for row := range b {
			rest = append(rest, tokens[row*n+from:][:n-from]...)
		}
		if _, err := s.Step(ended, rest, n-from); !errors.Is(err, context.Canceled) || s.Tokens() != int64(from) {
			t.Errorf("after %d tokens: error %v, %d tokens", from, err, s.Tokens())
		}
		copied := s.Clone()
		steps := []SessionStep{{Session: grouped, Tokens: rest}}
		g.StepTogether(steps)
		for what, got := range map[string][]float64{"restored": step(t, restored, x, from, n), "copied": step(t, copied, x, from, n), "interrupted": step(t, s, x, from, n), "grouped": steps[0].Logits} {
			if !slices.Equal(got, long) {
				t.Errorf("after %d tokens, %s: the logits differ", from, what)
			}
		}
		for cut := range len(data) {
			if _, err := m.RestoreSession(data[:cut]); err == nil {
				t.Errorf("%d of %d bytes are restored", cut, len(data))
			}
		}
		s.Reset()
		if got := step(t, s, x, 0, n); !slices.Equal(got, long) {
			t.Error("a session that is reset gives other logits")
		}
	}
}

// Frequencies of a length are the paper's, and batches and sessions that would mix them are refused.
func TestDynamicRotationsFollowTheLength(t *testing.T) {
	const n, width, theta = 48, 8, 1e4
	r := &RopeScaling{Kind: DynamicScaling, Factor: 2, OriginalContext: 16}
	c := with(llama(), func(c *Config) { c.Context, c.HeadWidth, c.RopeTheta, c.RopeScaling = 16, width, theta, r })
	turns := c.rotations()
	base := theta * math.Pow(2*n/16.-1, width/6.)
	for class, theta := range map[int64]float64{turns.lengthClass(16): theta, turns.lengthClass(n): base} {
		for j, got := range turns.ofClass(class)[globalRotation].Pairs {
			if want := math.Pow(theta, -2*float64(j)/width); math.Abs(got/want-1) > 1e-15*10 {
				t.Errorf("class %d: frequency %d is %g, want %g", class, j, got, want)
			}
		}
	}
	m := made(t, c)
	s := session(t, m, 1)
	if _, err := s.Step(t.Context(), tokensOf(c, 1, 16), 16); err != nil {
		t.Fatal(err)
	}
	const want = "rope_scaling: kind dynamic rotates all tokens anew with each token after original_context 16, and a session keeps rotated ones; 17 are needed"
	if _, err := s.Step(t.Context(), []int32{1}, 1); err == nil || err.Error() != want || s.Tokens() != 16 {
		t.Errorf("error %v, %d tokens", err, s.Tokens())
	}
	if _, err := s.Step(t.Context(), []int32{1}, 1); errors.Is(err, ErrSessionFailed) {
		t.Error(err)
	}
	x := &Batch{B: 2, N: n, Tokens: tokensOf(c, 1, 2*n), Lens: []int64{n, 5}}
	if err := m.Logits(t.Context(), x, make([]float64, 2*n*c.Vocab)); err == nil || !strings.Contains(err.Error(), "rope_scaling: dynamic rotates a sequence of 48 tokens otherwise than one of 5") {
		t.Error(err)
	}
	// Padding changes nothing.
	alone, padded := make([]float64, 20*c.Vocab), make([]float64, n*c.Vocab)
	if err := m.Logits(t.Context(), &Batch{B: 1, N: 20, Tokens: x.Tokens[:20]}, alone); err != nil {
		t.Fatal(err)
	}
	mask := slices.Repeat([]bool{true}, n)
	clear(mask[20:])
	for _, of := range []*Batch{{B: 1, N: n, Tokens: x.Tokens[:n], Lens: []int64{20}}, {B: 1, N: n, Tokens: x.Tokens[:n], KeyMask: mask}} {
		if err := m.Logits(t.Context(), of, padded); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(padded[:len(alone)], alone) {
			t.Error("padding changes the logits")
		}
	}
}
