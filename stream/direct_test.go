//go:build !float64

package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// measured notes the tokens of the largest window.
type measured struct {
	*arraySource
	tokens int
}

func (m *measured) NewWindow(n int, want Role) *Window {
	m.tokens = max(m.tokens, n)
	return m.arraySource.NewWindow(n, want)
}

// rowOf returns row i of the textbook's output for c [B,H,1,Dv]. The problem is of a mechanism
// whose textbook is in the table here.
func rowOf(p problem, c *attention.Call, i int) oracle.Heads {
	book := map[string]oracle.Mechanism{
		"fastmax":    {Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2)},
		"linear":     {Scale: 1, Map: oracle.EluPlusOne, Coef: []float64{0, 1}, Eps: 1e-6},
		"polynomial": {Coef: oracle.TaylorCoef(2)},
	}[p.name]
	if eps := p.set["eps"]; eps != "" {
		book.Eps, _ = strconv.ParseFloat(eps, 64)
	}
	wide := func(x tensor.Heads) oracle.Heads {
		y := oracle.NewHeads(x.B, x.H, x.N, x.D)
		for h := range x.B * x.H {
			for n := range x.N {
				for d, v := range x.Head(h/x.H, h%x.H).Row(n) {
					y.Head(h/x.H, h%x.H).Row(n)[d] = float64(v)
				}
			}
		}
		return y
	}
	sees := c.K.N
	if c.Causal {
		sees = i + 1 + c.K.N - c.Q.N
	}
	row := &oracle.Call{Q: wide(c.Q.Tokens(i, i+1)), K: wide(c.K.Tokens(0, sees)), V: wide(c.V.Tokens(0, sees))}
	for b := range c.Q.B {
		if c.KeyMask != nil {
			row.KeyMask = append(row.KeyMask, c.KeyMask[b*c.K.N:][:sees]...)
		}
	}
	return book.Forward(row).O
}

// TestComputedRowsEqualTheTextbook holds rows that are made piece by piece against the textbook,
// across pieces and windows, and rows of an output against them.
func TestComputedRowsEqualTheTextbook(t *testing.T) {
	defer par.SetThreads(0)
	for _, p := range []problem{
		{name: "fastmax", shape: Shape{B: 2, H: 4, Hkv: 2, N: 300, M: 300, D: 5, Dv: 3}, mask: true},
		{name: "fastmax", shape: Shape{B: 1, H: 2, Hkv: 1, N: 70000, M: 70010, D: 2, Dv: 2}, causal: true, mask: true},
		{name: "linear", shape: Shape{B: 1, H: 2, Hkv: 2, N: 20, M: 9000, D: 4, Dv: 3}},
		{name: "linear", shape: Shape{B: 1, H: 1, Hkv: 1, N: 20, M: 9000, D: 64, Dv: 3}, shift: -12}, // eps is not small beside weights
		{name: "polynomial", set: map[string]string{"eps": "100"}, shape: Shape{B: 1, H: 2, Hkv: 1, N: 20, M: 9000, D: 4, Dv: 3}, causal: true},
		{name: "linear", set: map[string]string{"eps": "1"}, shape: Shape{B: 1, H: 2, Hkv: 2, N: 20, M: 3*pieceTokens + 20, D: 4, Dv: 3}, causal: true, mask: true},
	} {
		t.Run(p.String(), func(t *testing.T) {
			c := p.call()
			for _, x := range [][]tensor.Float{c.Q.Data, c.K.Data} {
				for i := range x {
					x[i] += p.shift
				}
			}
			if len(c.KeyMask) > 2*pieceTokens {
				clear(c.KeyMask[pieceTokens : 2*pieceTokens]) // a whole piece has no key
			}
			m, err := mechanism.New(p.name, mechanism.Options{Heads: p.shape.H, Width: p.shape.D, Set: p.set})
			if err != nil {
				t.Fatal(err)
			}
			bound := RowsBound(m, p.shape)
			if bound == 0 { // none is derived for feature maps: that of the sums of 256 keys
				bound = (8 + math.Sqrt(blockTokens)) * check.UnitRoundoff[tensor.Float]()
			}
			src := source(t, file(t, c))
			last := (p.shape.N - 5) / 10 * 10
			rows := []int64{0, 1, p.shape.N / 2, last, p.shape.N - 3, p.shape.N - 1}
			want := make([]oracle.Heads, len(rows))
			for j, i := range rows {
				want[j] = rowOf(p, c, int(i))
			}
			maxV := check.MaxAbs(c.V.Data)
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
					first = got
				} else if !slices.Equal(got, first) {
					t.Errorf("%d threads, memory %d: others", x.threads, x.memory)
				}
				if x.memory == 1 && src.tokens > pieceTokens {
					t.Errorf("a window of %d tokens in no memory", src.tokens)
				}
				for h := range c.Q.B * c.Q.H {
					for j, i := range rows {
						row := want[j].Head(h/c.Q.H, h%c.Q.H).Row(0)
						limit := bound * (maxV + check.MaxAbs(row))
						if r := check.ErrorRatio(got[(h*len(rows)+j)*c.V.D:][:c.V.D], row, limit); r > 1 {
							t.Errorf("head %d, row %d is off by %.3g limits", h, i, r)
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
				x := make([]tensor.Float, p.shape.Dv)
				for h := range p.shape.H {
					i, row := last, want[3].Head(0, h).Row(0)
					if err := out.ReadRow(x, 0, h, i); err != nil {
						t.Fatal(err)
					}
					limit := 2 * check.LinearLimits[tensor.Float](c.Q.D, c.K.N).Output(1, maxV+check.MaxAbs(row))
					if r := check.ErrorRatio(x, row, limit); r > 1 {
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
	t.Parallel()
	p := problem{name: "linear", shape: Shape{B: 1, H: 2, Hkv: 1, N: 9, M: 9, D: 3, Dv: 2}, causal: true}
	m, err := mechanism.New(p.name, mechanism.Options{Heads: 2, Width: 3})
	if err != nil {
		t.Fatal(err)
	}
	src := &measured{source(t, file(t, p.call())), 0}
	if got, err := ComputeRows(t.Context(), m, src, true, nil, 0, nil); err != nil || len(got) != 0 || src.tokens > 0 {
		t.Errorf("%d rows, a window of %d tokens, %v", len(got), src.tokens, err)
	}
}

func TestComputeRowsRefusesDecayAndPipes(t *testing.T) {
	t.Parallel()
	p := problem{name: "fastmax", shape: Shape{B: 1, H: 1, Hkv: 1, N: 9, M: 9, D: 3, Dv: 2}, causal: true}
	decayed := p
	decayed.decay = true
	normed := p
	normed.set = map[string]string{"output_norm": "true"}
	for _, x := range []struct {
		want, name string
		p          problem
		row        int64
	}{
		{"retention has no sums of weights", "retention", p, 0},
		{"local has no sums of weights", "local", p, 0},
		{"outputs of polynomial norm=none", "polynomial", normed, 0},
		{"log_g: rows are computed directly without decay alone", "fastmax", decayed, 0},
		{"rows: 9 is not from 0 to 8", "fastmax", p, 9},
	} {
		m, err := mechanism.New(x.name, mechanism.Options{Heads: 1, Width: 3, Set: x.p.set})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ComputeRows(context.Background(), m, source(t, file(t, x.p.call())), true, []int64{x.row}, 0, nil)
		if err == nil || !errors.Is(err, fault.ErrInput) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}
