package attention

import (
	"strings"
	"testing"
)

// The form changes where the counted operations cross, and depends on nothing
// but the mechanism and the sequence's own shape.
func TestChoice(t *testing.T) {
	fast, err := New(Spec[float32]{Name: "poly", Norm: Standard, Scale: 1, Coef: []float64{1, 1, 0.5}, Positive: true})
	if err != nil {
		t.Fatal(err)
	}
	soft, err := New(Spec[float32]{Name: "exp", Exp: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []int{8, 16, 32, 64, 128} {
		f := float64((d + 1) * (d + 2) / 2)
		for _, causal := range []bool{false, true} {
			first := 0
			for n := 1; first == 0; n++ {
				p := fast.Plan(Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: d, Dv: d, Causal: causal})
				if p.Form == Linear {
					first = n
				}
			}
			// 2n²(2D+3) = 4Fn(D+1.5) at n = 2F(D+1.5)/(2D+3); causal pays for
			// its chunks as well, and saves half of the direct form.
			want := f
			if causal {
				want = 2*f + float64(fast.Plan(Shape{B: 1, H: 1, Hkv: 1, N: 1 << 20, M: 1 << 20, D: d, Dv: d, Causal: true}).Chunk)
			}
			if got := float64(first); got < want || got > want+2 {
				t.Errorf("D = %d, causal %v: linear from %v on, want %v", d, causal, got, want)
			}
		}
	}
	one := Shape{B: 1, H: 2, Hkv: 2, N: 300, M: 300, D: 16, Dv: 16}
	many := one
	many.B, many.H, many.Hkv = 64, 8, 2
	if a, b := fast.Plan(one), fast.Plan(many); a.Form != b.Form || a.Chunk != b.Chunk || b.FLOPs >= 256*a.FLOPs || b.FLOPs <= 128*a.FLOPs {
		t.Errorf("batch and heads change the plan from %+v to %+v", a, b)
	}
	p := soft.Plan(Shape{B: 1, H: 1, Hkv: 1, N: 1 << 20, M: 1 << 20, D: 16, Dv: 16})
	if p.Form != Direct || p.F != 0 || !strings.Contains(p.Why, "exponential") {
		t.Errorf("softmax over 2²⁰ tokens: %+v", p)
	}
}
