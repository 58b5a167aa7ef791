package kernel

import (
	"fmt"
	"slices"
	"testing"
)

// The assembly tables do the same operations in the same order, and so give
// the same bits.
func TestAssemblyAgrees(t *testing.T) {
	all := Tables[float32]()
	if len(all) < 3 {
		t.Skipf("this machine has only %d tables", len(all))
	}
	wide, narrow := all[0], all[1]
	r := source()
	for _, n := range append([]int{1000, 4099}, sizes...) {
		x, y, d := guard[float32](n, 1).random(r).data, guard[float32](n, 2).random(r).data, guard[float32](n, 3).random(r).data
		for _, f := range rowRoutines[float32]() {
			d1, d2 := slices.Clone(d), slices.Clone(d)
			s1, s2 := f.run(wide, d1, x, y), f.run(narrow, d2, x, y)
			if !same(d1, d2) || bits(s1) != bits(s2) {
				t.Errorf("%s(%d) differs", f.name, n)
			}
		}
		if n == 0 {
			continue
		}
		d1, d2 := make([]float32, n), make([]float32, n)
		copy(d1, x)
		copy(d2, x)
		e1, e2, shift := []float32{1}, []float32{1}, []float32{2}
		wide.ExpRows(d1, n, n, 1.5, shift, e1)
		narrow.ExpRows(d2, n, n, 1.5, shift, e2)
		if !same(d1, d2) || !same(e1, e2) {
			t.Errorf("ExpRows(%d) differs", n)
		}
		m1, s1 := wide.LayerNorm(d1, x, y, d, 1e-5)
		m2, s2 := narrow.LayerNorm(d2, x, y, d, 1e-5)
		if !same(d1, d2) || m1 != m2 || s1 != s2 {
			t.Errorf("LayerNorm(%d) differs", n)
		}
		g1, g2, b1, b2 := slices.Clone(d), slices.Clone(d), slices.Clone(d), slices.Clone(d)
		wide.LayerNormGrad(d1, g1, b1, x, y, d, m1, 1.5)
		narrow.LayerNormGrad(d2, g2, b2, x, y, d, m1, 1.5)
		if !same(d1, d2) || !same(g1, g2) || !same(b1, b2) {
			t.Errorf("LayerNormGrad(%d) differs", n)
		}
		s := &AdamWStep[float32]{Rate: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Correct1: 4, Correct2: 8, GradScale: 0.3}
		v1, v2 := make([]float32, n), make([]float32, n)
		wide.AdamW(d1, x, g1, v1, s)
		narrow.AdamW(d2, x, g2, v2, s)
		if !same(d1, d2) || !same(g1, g2) || !same(v1, v2) {
			t.Errorf("AdamW(%d) differs", n)
		}
	}
	for _, s := range [][3]int{{1, 80, 300}, {7, 47, 65}, {65, 97, 257}, {200, 33, 31}} {
		m, n, k := s[0], s[1], s[2]
		a, b := matrix[float32](r, m, k, k).data, matrix[float32](r, k, n, n).data
		c1, c2, scratch := make([]float32, m*n), make([]float32, m*n), make([]float32, GemmScratch(m, n, k))
		Gemm(wide, false, false, m, n, k, a, k, b, n, false, c1, n, scratch)
		Gemm(narrow, false, false, m, n, k, a, k, b, n, false, c2, n, scratch)
		if !same(c1, c2) {
			t.Errorf("Gemm %v differs", s)
		}
	}
}

// dst may be x or y itself.
func TestInPlace(t *testing.T) { each(t, testInPlace) }

func testInPlace(t *testing.T, k *Table[float32]) {
	r := source()
	for _, n := range sizes {
		for _, f := range rowRoutines[float32]() {
			if f.only {
				continue
			}
			x, y := guard[float32](n, 1).random(r).data, guard[float32](n, 2).random(r).data
			want := slices.Clone(x)
			s := f.run(k, want, slices.Clone(x), y)
			got := slices.Clone(x)
			if f.run(k, got, got, y) != s || !same(got, want) {
				t.Errorf("%s(%d) with dst = x differs", f.name, n)
			}
			want = slices.Clone(y)
			f.run(k, want, x, slices.Clone(y))
			got = slices.Clone(y)
			if f.run(k, got, x, got); !same(got, want) {
				t.Errorf("%s(%d) with dst = y differs", f.name, n)
			}
		}
		if n == 0 {
			continue
		}
		x, gain := guard[float32](n, 1).random(r).data, guard[float32](n, 2).random(r).data
		want, got := make([]float32, n), slices.Clone(x)
		k.LayerNorm(want, x, gain, gain, 1e-5)
		k.LayerNorm(got, got, gain, gain, 1e-5)
		if !same(got, want) {
			t.Errorf("LayerNorm(%d) with dst = x differs", n)
		}
		dy := guard[float32](n, 1).random(r).data
		k.LayerNormGrad(want, nil, nil, dy, x, gain, 0.25, 1.5)
		k.LayerNormGrad(dy, nil, nil, dy, x, gain, 0.25, 1.5)
		if !same(dy, want) {
			t.Errorf("LayerNormGrad(%d) with dx = dy differs", n)
		}
	}
}

func TestTranspose(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testTranspose[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testTranspose[float64]) })
}

func testTranspose[T Float](t *testing.T, k *Table[T]) {
	r := source()
	lengths := []int{0, 1, 3, 7, 8, 9, 16, 17, 31, 65, 131, 260}
	for _, rows := range lengths {
		for _, cols := range lengths {
			srs, drs := cols+3, rows+5
			src, dst := matrix[T](r, rows, cols, srs), guard[T](max(0, (cols-1)*drs+rows), 1)
			k.Transpose(dst.data, drs, src.data, srs, rows, cols)
			dst.intact(t, "Transpose")
			for i, got := range dst.data {
				want := mark[T]()
				if i%drs < rows {
					want = src.data[i%drs*srs+i/drs]
				}
				if bits(got) != bits(want) {
					t.Fatalf("%d×%d: dst[%d] = %v, want %v", rows, cols, i, got, want)
				}
			}
		}
	}
}

// Slices that are too short panic before anything is written.
func TestShort(t *testing.T) { each(t, testShort) }

func testShort(t *testing.T, k *Table[float32]) {
	const n = 20
	dst, short := make([]float32, n), make([]float32, n-1)
	step := &AdamWStep[float32]{}
	for name, f := range map[string]func(){
		"Axpy":           func() { k.Axpy(dst, 1, short) },
		"Scale":          func() { k.Scale(dst, 1, short) },
		"Add":            func() { k.Add(dst, dst, short) },
		"Mul":            func() { k.Mul(dst, short, dst) },
		"MulAdd":         func() { k.MulAdd(dst, short, dst) },
		"AddCarry":       func() { k.AddCarry(dst, dst, short) },
		"AddCarry lo":    func() { k.AddCarry(dst, short, dst) },
		"SwapCarry":      func() { k.SwapCarry(dst, dst, short) },
		"SwapCarry lo":   func() { k.SwapCarry(dst, short, dst) },
		"Dot":            func() { k.Dot(dst, short) },
		"Exp":            func() { k.Exp(dst, short, 0) },
		"ExpRows":        func() { k.ExpRows(short, 10, 10, 1, dst[:2], dst[2:]) },
		"ExpRows sum":    func() { k.ExpRows(dst, 10, 10, 1, short[:2], dst[:1:1]) },
		"Poly":           func() { k.PolyRows(dst, short, n, n, []float32{1}, []float32{0}) },
		"Poly coef":      func() { k.PolyRows(dst, dst, n, n, nil, []float32{0}) },
		"Poly sum":       func() { k.PolyRows(dst, dst[:n:n], 10, 10, []float32{1}, make([]float32, 3)) },
		"MulRows":        func() { k.MulRows(short, dst, 10, 10, []float32{1, 1}) },
		"ScaleRows":      func() { k.ScaleRows(dst, 10, short, 10, 10, []float32{1, 1}) },
		"GELU":           func() { k.GELU(dst, short) },
		"GELUGrad":       func() { k.GELUGrad(dst, short, dst) },
		"ErfGELU":        func() { k.ErfGELU(dst, short) },
		"ErfGELUGrad":    func() { k.ErfGELUGrad(dst, short, dst) },
		"EluPlusOne":     func() { k.EluPlusOne(dst, short) },
		"EluPlusOneGrad": func() { k.EluPlusOneGrad(dst, dst, short) },
		"LayerNorm":      func() { k.LayerNorm(dst, dst, short, nil, 1) },
		"LayerNormGrad":  func() { k.LayerNormGrad(dst, nil, nil, short, dst, dst, 0, 1) },
		"AdamW":          func() { k.AdamW(dst, dst, dst, short, step) },
		"Transpose":      func() { k.Transpose(dst, 4, short, 5, 4, 5) },
		"Block A":        func() { k.Block(2, 16, 10, short, 10, 1, make([]float32, 160), 16, make([]float32, 32), 16, false) },
		"Block B":        func() { k.Block(1, 16, 2, dst, 2, 1, short, 16, dst, 16, false) },
		"Block C":        func() { k.Block(2, 16, 1, dst, 1, 1, dst, 16, short, 16, false) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
				for _, x := range dst {
					if name[:3] != "Blo" && x != 0 {
						t.Error("dst was written")
					}
				}
			}()
			f()
		})
	}
}

func TestNoAllocation(t *testing.T) { each(t, testNoAllocation) }

func testNoAllocation(t *testing.T, k *Table[float32]) {
	const n = 77
	r := source()
	x, y, d := guard[float32](n, 1).random(r).data, guard[float32](n, 2).random(r).data, guard[float32](n, 3).random(r).data
	step := &AdamWStep[float32]{Eps: 1}
	type routine struct {
		name string
		run  func()
	}
	a, b, c := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	scratch := make([]float32, GemmScratch(n, n, n))
	all := []routine{
		{"LayerNorm", func() { k.LayerNorm(d, x, y, y, 1) }},
		{"LayerNormGrad", func() { k.LayerNormGrad(d, d, d, x, y, y, 1, 1) }},
		{"AdamW", func() { k.AdamW(d, x, y, y, step) }},
		{"Transpose", func() { k.Transpose(c, n, a, n, n, n) }},
		{"AddCarry", func() { k.AddCarry(d, x, y) }},
		{"SwapCarry", func() { k.SwapCarry(d, x, y) }},
		{"ExpRows", func() { k.ExpRows(c, n, n, 1, x[:3], y) }},
		{"Block", func() { k.Block(n, 64, n, a, n, 1, b, n, c, n, true) }},
	}
	for _, f := range rowRoutines[float32]() {
		all = append(all, routine{f.name, func() { f.run(k, d, x, y) }})
	}
	for variant := range 4 {
		ta, tb := variant&1 > 0, variant&2 > 0
		all = append(all, routine{fmt.Sprintf("Gemm %v %v", ta, tb), func() {
			Gemm(k, ta, tb, n, n, n, a, n, b, n, false, c, n, scratch)
		}})
	}
	for _, f := range all {
		if count := testing.AllocsPerRun(5, f.run); count != 0 {
			t.Errorf("%s allocates %v times", f.name, count)
		}
	}
}
