package stream

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// measured notes the tokens of the largest window.
type measured struct {
	*ArraySource[float32]
	tokens int
}

func (m *measured) NewWindow(n int, want Role) *Window[float32] {
	m.tokens = max(m.tokens, n)
	return m.ArraySource.NewWindow(n, want)
}

// TestComputedRowsEqualTheCallInMemory holds rows that are made piece by piece against the call in memory,
// across pieces and windows, and rows of an output against them.
func TestComputedRowsEqualTheCallInMemory(t *testing.T) {
	defer par.SetThreads(0)
	for _, p := range []problem[float32]{
		{name: "fastmax", shape: Shape{B: 2, H: 4, Hkv: 2, N: 300, M: 300, D: 5, Dv: 3}, mask: true},
		{name: "fastmax", shape: Shape{B: 1, H: 2, Hkv: 1, N: 70000, M: 70010, D: 2, Dv: 2}, causal: true, mask: true},
		{name: "linear", shape: Shape{B: 1, H: 2, Hkv: 2, N: 20, M: 9000, D: 4, Dv: 3}},
		{name: "polynomial", set: map[string]string{"eps": "100"}, shape: Shape{B: 1, H: 2, Hkv: 1, N: 20, M: 9000, D: 4, Dv: 3}, causal: true},
		{name: "linear", set: map[string]string{"eps": "1"}, shape: Shape{B: 1, H: 2, Hkv: 2, N: 20, M: 3*pieceTokens + 20, D: 4, Dv: 3}, causal: true, mask: true},
	} {
		t.Run(p.String(), func(t *testing.T) {
			c := p.call()
			if len(c.KeyMask) > 2*pieceTokens {
				clear(c.KeyMask[pieceTokens : 2*pieceTokens]) // a whole piece has no key
			}
			wide := &attention.Call[float64]{Q: widenHeads(c.Q), K: widenHeads(c.K), V: widenHeads(c.V), KeyMask: c.KeyMask, Causal: c.Causal, Form: attention.Linear}
			m, err := mechanism.New[float64](p.name, mechanism.Options{Heads: p.shape.H, Width: p.shape.D, Set: p.set})
			if err != nil {
				t.Fatal(err)
			}
			want := tensor.NewHeads[float64](c.Q.B, c.Q.H, c.Q.N, c.V.D)
			if err := m.Forward(want, wide, nil); err != nil {
				t.Fatal(err)
			}
			src := source(t, file(t, c))
			rows := []int64{0, 1, p.shape.N / 2, p.shape.N - 3, p.shape.N - 1}
			var first []float64
			for _, x := range []struct {
				threads int
				memory  int64
			}{{1, 0}, {3, 0}, {3, 1}} {
				par.SetThreads(x.threads)
				src := &measured{src, 0}
				got, err := ComputeRows(context.Background(), m, src, p.causal, rows, x.memory, nil)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = got.Data
				} else if !slices.Equal(got.Data, first) {
					t.Errorf("%d threads, memory %d: others", x.threads, x.memory)
				}
				if x.memory == 1 && src.tokens > pieceTokens {
					t.Errorf("a window of %d tokens in no memory", src.tokens)
				}
				for h := range want.B * want.H {
					b, h := h/want.H, h%want.H
					limit := 2 * check.LinearLimits[float64](c.Q.D, c.K.N).Output(1, check.MaxAbs(wide.V.Data)+check.MaxAbs(want.Data))
					for j, i := range rows {
						if r := check.ErrorRatio(got.Head(b, h).Row(j), want.Head(b, h).Row(int(i)), limit); r > 1 {
							t.Errorf("batch row %d, head %d, row %d is off by %.3g limits", b, h, i, r)
						}
					}
				}
			}
			if p.shape.B > 1 {
				return
			}
			for _, name := range []string{"o.npy", "o.raw"} {
				out := output(t, filepath.Join(t.TempDir(), name), 4)
				out.RowStep = 10
				m := p.mechanism(t)
				if _, err := Run(context.Background(), m, src, out, Options{Causal: p.causal}); err != nil {
					t.Fatal(err)
				}
				x := make([]float32, p.shape.Dv)
				for h := range want.H {
					i := (p.shape.N - 5) / 10 * 10
					if err := out.ReadRow(x, 0, h, i); err != nil {
						t.Fatal(err)
					}
					wider := make([]float64, len(x))
					widenRow(wider, x)
					limit := 2 * check.LinearLimits[float32](c.Q.D, c.K.N).Output(1, check.MaxAbs(wide.V.Data)+check.MaxAbs(want.Data))
					if r := check.ErrorRatio(wider, want.Head(0, h).Row(int(i)), limit); r > 1 {
						t.Errorf("%s: head %d, row %d is off by %.3g limits", name, h, i, r)
					}
					if err := out.ReadRow(x, 0, h, i+1); err == nil {
						t.Errorf("%s: there is a row %d", name, i+1)
					}
				}
				n, h := p.shape.N, p.shape.H
				for _, at := range []struct {
					b, h int
					i    int64
				}{{0, 0, -10}, {0, 0, (n + 9) / 10 * 10}, {0, 0, math.MaxInt64}, {0, h, 0}, {0, -1, 0}, {1, 0, 0}, {-1, h, 0}} {
					refused(t, out.ReadRow(x, at.b, at.h, at.i), fmt.Sprintf("row %d of head %d of batch row %d: there are %d, %d and 1", at.i, at.h, at.b, n, h))
				}
			}
		})
	}
}

func TestNoRowsTakeNoWindow(t *testing.T) {
	p := problem[float32]{name: "linear", shape: Shape{B: 1, H: 2, Hkv: 1, N: 9, M: 9, D: 3, Dv: 2}, causal: true}
	m, err := mechanism.New[float64](p.name, mechanism.Options{Heads: 2, Width: 3})
	if err != nil {
		t.Fatal(err)
	}
	src := &measured{source(t, file(t, p.call())), 0}
	if got, err := ComputeRows(t.Context(), m, src, true, nil, 0, nil); err != nil || got.N != 0 || src.tokens > 0 {
		t.Errorf("%d rows, a window of %d tokens, %v", got.N, src.tokens, err)
	}
}

func TestComputeRowsRefusesDecayAndPipes(t *testing.T) {
	p := problem[float32]{name: "fastmax", shape: Shape{B: 1, H: 1, Hkv: 1, N: 9, M: 9, D: 3, Dv: 2}, causal: true}
	decayed := p
	decayed.decay = true
	normed := p
	normed.set = map[string]string{"output_norm": "true"}
	for _, x := range []struct {
		want, name string
		p          problem[float32]
		row        int64
	}{
		{"retention has no sums of weights", "retention", p, 0},
		{"local has no sums of weights", "local", p, 0},
		{"outputs of polynomial norm=none", "polynomial", normed, 0},
		{"log_g: rows are computed directly without decay alone", "fastmax", decayed, 0},
		{"rows: 9 is not from 0 to 8", "fastmax", p, 9},
	} {
		m, err := mechanism.New[float64](x.name, mechanism.Options{Heads: 1, Width: 3, Set: x.p.set})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ComputeRows(context.Background(), m, source(t, file(t, x.p.call())), true, []int64{x.row}, 0, nil)
		if err == nil || !IsBadInput(err) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}
