//go:build !float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// The bound of long streams is one rounding for each feature, token of a chunk
// and chunk, and a little.
func TestPlannedBoundCountsRoundings(t *testing.T) {
	m, err := New("taylorshift", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1 << 12, 1 << 16, 1 << 20} {
		s := attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: 16, Dv: 16, Causal: true, Form: attention.Linear}
		p := m.Plan(s)
		roundings := float64(p.F) + float64(p.Chunk) + float64(n/p.Chunk)
		if got := p.Bound / 0x1p-24; got < roundings || got > 2*roundings+400 {
			t.Errorf("N = %d: the bound is %.0f roundings, the sums take %.0f", n, got, roundings)
		}
	}
	// Compensated sums err by what a chunk's do, until 2u² a chunk adds up.
	s := attention.Shape{B: 1, H: 1, Hkv: 1, N: 1 << 30, M: 1 << 30, D: 16, Dv: 16, Causal: true, Form: attention.Step, Carry: attention.Compensated}
	p := m.Plan(s)
	roundings := float64(p.F) + float64(p.Chunk) + 1 + 0x1p-23*float64(s.M/p.Chunk)
	if got := p.Bound / 0x1p-24; got < roundings || got > 2*roundings+400 {
		t.Errorf("compensated: the bound is %.0f roundings, the sums take %.0f", got, roundings)
	}
	if p := m.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: 1 << 30, M: 1 << 30, D: 16, Dv: 16, Form: attention.Direct}); !math.IsInf(p.Bound, 1) {
		t.Errorf("2³⁰ keys one after another: the bound is %v", p.Bound)
	}
}
