package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

// bitsOf holds digests of the assembly routines' results for the same numbers.
var bitsOf = map[string]uint64{
	"AdamW":            0x71bb7c9d1220861c,
	"Add":              0x6499b12ee9e6b5bc,
	"AddCarry":         0xdf7b310cc5c7f299,
	"AddRows":          0xa7c1ce4ebe41a549,
	"Axpy":             0x7f73d153573e7160,
	"Centre":           0xe2d64523e1bfa5bc,
	"ClearRows":        0,
	"Dot":              0x79588f9607eeeb76,
	"Dots":             0x8ad48116b31902c1,
	"EluPlusOne":       0x79f7d043c3aa9b10,
	"EluPlusOneGrad":   0xae21f5bf73b57141,
	"ErfGELU":          0xe91dc1c5d0b0248c,
	"ErfGELUGrad":      0xd612936b5b42b186,
	"Exp":              0xa554939c73956725,
	"ExpRows":          0xeba81165f827ce86,
	"FeatureDots":      0x9a980bbc9254e03e,
	"FeatureGrad":      0x5411b29b7b709fb8,
	"FeatureRow":       0x69206975e324e457,
	"FeatureSums":      0xdb2cd22da3da7cc5,
	"GELU":             0x220101599515cbe4,
	"GELUGrad":         0xede3d81cf90b96be,
	"Gemm":             0x428ab02392d73b86,
	"LayerNorm":        0x0d3d3040cedf0c85,
	"LayerNormGrad":    0x23391523050b74db,
	"Max":              0xf1dbe1dfad6dc07f,
	"Mix":              0x4e9e7004dd1cf20a,
	"MixRows":          0xae2a6e94d544173,
	"Mul":              0xd53a66cc343980a1,
	"MulAdd":           0xb4e3760cf88bd059,
	"MulRows":          0x209d0a406210f43c,
	"Normalise":        0x63c5dfe20cd80aa0,
	"NormaliseGrad":    0xd1b7724ddfb5ac24,
	"Poly":             0xf063a3d67440cd86,
	"Poly of one term": 0x9e67a9c3fbb39562,
	"Products":         0x3d739ed2e964556a,
	"Reflect":          0xc1a28cc3f614bfce,
	"ReflectGrad":      0x8957007ed801136f,
	"Rotate":           0x482f2663cf173fbd,
	"Renew":            0xa195db9a2b445eb7,
	"RowDots":          0xe3ac9819e3705c53,
	"Scale":            0x1394e3d07b0ea6ce,
	"ScaleRows":        0x1394e3d07b0ea6ce,
	"Standardise":      0x325dbe185b08d451,
	"TopTwo":           0x16c57ea8c5329530,
	"Sum":              0x813dfa514d4b7f0e,
	"SumRows":          0xf7aa1d6a1e0a2042,
	"Uniform":          0xf74332fdfc6f98a7,
}

// The assembly tables of all processors do the same operations in the same order, with the same bits.
func TestAssemblyBits(t *testing.T) {
	all := Tables[float32]()
	for _, k := range all[:len(all)-1] {
		t.Run(k.Name, func(t *testing.T) { testAssemblyBits(t, k) })
	}
}

func testAssemblyBits(t *testing.T, k *Table[float32]) {
	r := source()
	// Exact numbers: a normal distribution may round differently on other processors.
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(int32(r.Uint32())>>8) / (1 << 22)
		}
		return x
	}
	digests := map[string]uint64{}
	note := func(name string, slices ...[]float32) {
		h := digests[name]
		for _, x := range slices {
			for _, v := range x {
				h = (h ^ uint64(math.Float32bits(v))) * 0x9e3779b97f4a7c15
				h ^= h >> 32
			}
		}
		digests[name] = h
	}
	for _, n := range []int{1, 2, 15, 16, 33, 79, 1000, 4099} {
		x, y, d := numbers(n), numbers(n), numbers(n)
		for _, f := range rowRoutines[float32]() {
			dst := slices.Clone(d)
			sum := f.run(k, dst, x, y)
			note(f.name, dst, []float32{sum})
		}
		hi, lo, c := slices.Clone(x), slices.Clone(y), slices.Clone(d)
		k.AddCarry(hi, lo, c)
		k.SwapCarry(hi, lo, c)
		note("AddCarry", hi, lo, c)
		dst, sum := slices.Clone(x), []float32{1}
		k.ExpRows(dst, n, n, 1.5, []float32{2}, sum)
		note("ExpRows", dst, sum)
		for _, bias := range [][]float32{d, nil} {
			stats := make([]float32, 2)
			k.LayerNorm(dst, n, x, n, 1, n, y, bias, stats, 1e-5)
			note("LayerNorm", dst, stats)
		}
		dgain, dbias := slices.Clone(d), slices.Clone(d)
		clear(dst)
		k.LayerNormGrad(dst, n, dgain, dbias, x, n, y, n, 1, n, d, []float32{0.25, 1.5})
		note("LayerNormGrad", dst, dgain, dbias)
		w, m, v := slices.Clone(y), slices.Clone(d), make([]float32, n)
		k.AdamW(w, x, m, v, &AdamWStep[float32]{Rate: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Correct1: 4, Correct2: 8, GradScale: 0.3})
		note("AdamW", w, m, v)
	}
	for _, s := range [][2]int{{2, 3}, {7, 33}, {18, 67}, {129, 80}} {
		rows, n := s[0], s[1]
		ld := n + 5
		matrix := func(rows int) []float32 { return numbers(rows * ld) }
		for _, f := range columnRoutines[float32]() {
			dst := matrix(rows)
			f.run(k, dst, matrix(rows), matrix(rows), ld, rows, n)
			note(f.name, dst)
		}
		sums := make([]float32, rows)
		k.Dots(sums, matrix(rows), ld, numbers(n))
		note("Dots", sums)
		runs := runsOf(rows)
		count, _, _ := countFeatures(runs)
		dst, p, x, w, z, y := matrix(count), matrix(rows), matrix(rows), numbers(count), numbers(count), numbers(n)
		sums = make([]float32, count)
		k.FeatureSums(dst, runs, p, x, ld, y, sums)
		note("FeatureSums", dst, sums)
		sums = numbers(n)
		k.FeatureDots(dst, runs, p, x, ld, w, z, sums)
		note("FeatureDots", dst, sums)
		dx, dp := matrix(rows), matrix(rows)
		k.FeatureGrad(dx, dp, dst, runs, p, x, ld, w, z, y)
		note("FeatureGrad", dx, dp)
		c := numbers(Pad(n))
		total := k.Mix(c, numbers(rows), 6, numbers(rows*Pad(n)), Pad(n), numbers(rows), 0.25)
		note("Mix", c, []float32{total})
		x = numbers(rows + Lanes)
		dst = make([]float32, rowFeatures(rows, rows)+Lanes)
		k.FeatureRow(dst, numbers(len(dst)), 0.7, x[:rows], rows)
		note("FeatureRow", dst[:rowFeatures(rows, rows)])
	}
	for _, s := range [][3]int{{1, 80, 300}, {7, 47, 65}, {65, 97, 257}, {200, 33, 31}} {
		m, n, depth := s[0], s[1], s[2]
		c, scratch := make([]float32, m*n), make([]float32, GemmScratch(m, n, depth))
		Gemm(k, false, false, m, n, depth, numbers(m*depth), depth, numbers(depth*n), n, false, c, n, scratch)
		note("Gemm", c)
	}
	dst := make([]float32, 5000)
	k.Uniform(dst, 0.0123, rng.New(7), 1<<32-40)
	note("Uniform", dst)
	for _, s := range [][2]int{{2, 3}, {7, 33}, {18, 67}, {31, 128}} {
		rows, n := s[0], s[1]
		ld := n + 5
		dst, x, y, sum := numbers(rows*ld), numbers(rows*ld), numbers(rows*ld), numbers(n)
		k.AddRows(dst, ld, x, ld, y, ld, rows, n)
		k.AddRows(dst, ld, dst, ld, y, 0, rows, n)
		note("AddRows", dst)
		k.SumRows(sum, x, ld, rows)
		note("SumRows", sum)
		dots := make([]float32, rows)
		k.RowDots(dots, x, ld, y, ld, n)
		note("RowDots", dots)
	}
	for _, s := range [][2]int{{2, 3}, {7, 33}, {32, 32}, {66, 90}} {
		rows, n := s[0], s[1]
		c, sums, z := numbers(Pad(n)), numbers(rows*Pad(n)), numbers(rows)
		total, w := make([]float32, 1), make([]float32, 1)
		k.Renew(1, Pad(n), rows, c, 0, numbers(rows), numbers(rows), numbers(rows), 0, numbers(Pad(n)), 0, sums, Pad(n), z, 0, 0.5, 1.25, total, w)
		note("Renew", c, sums, z, total)
	}

	best, next, at := make([]float32, 7*Lanes), make([]float32, 7*Lanes), make([]int32, 7*Lanes)
	k.TopTwo(numbers(7*99), 99, 96, numbers(96), 5, best, next, at)
	note("TopTwo", best, next, []float32{float32(at[0]), float32(at[50]), float32(at[111])})

	for name, got := range digests {
		if want := bitsOf[name]; got != want {
			t.Errorf("%q: %#x, want %#x", name, got, want)
		}
	}
	if len(digests) != len(bitsOf) {
		t.Errorf("%d routines, want %d", len(digests), len(bitsOf))
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
		stats := make([]float32, 2)
		k.LayerNorm(want, n, x, n, 1, n, gain, gain, stats, 1e-5)
		k.LayerNorm(got, n, got, n, 1, n, gain, gain, stats, 1e-5)
		if !same(got, want) {
			t.Errorf("LayerNorm(%d) with dst = x differs", n)
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
	scratch := make([]float32, 160)
	all := [][]float32{dst, short, scratch}
	step := &AdamWStep[float32]{Rate: 0.5, Beta1: 0.5, Beta2: 0.5, Eps: 1, Correct1: 1, Correct2: 1, GradScale: 1}
	for name, f := range map[string]func(){
		"Axpy":                func() { k.Axpy(dst, 1, short) },
		"Scale":               func() { k.Scale(dst, 1, short) },
		"Add":                 func() { k.Add(dst, dst, short) },
		"Mul":                 func() { k.Mul(dst, short, dst) },
		"MulAdd":              func() { k.MulAdd(dst, short, dst) },
		"AddCarry":            func() { k.AddCarry(dst, dst, short) },
		"AddCarry lo":         func() { k.AddCarry(dst, short, dst) },
		"SwapCarry":           func() { k.SwapCarry(dst, dst, short) },
		"SwapCarry lo":        func() { k.SwapCarry(dst, short, dst) },
		"Dot":                 func() { k.Dot(dst, short) },
		"Exp":                 func() { k.Exp(dst, short, 0) },
		"ExpRows":             func() { k.ExpRows(short, 10, 10, 1, dst[:2], dst[2:]) },
		"ExpRows sum":         func() { k.ExpRows(dst, 10, 10, 1, short[:2], dst[:1:1]) },
		"Poly":                func() { k.PolyRows(dst, short, n, n, scratch[:1], scratch[:1]) },
		"Poly coef":           func() { k.PolyRows(dst, dst, n, n, nil, []float32{0}) },
		"Poly sum":            func() { k.PolyRows(dst, dst, 10, 10, []float32{1}, scratch[:3]) },
		"MulRows":             func() { k.MulRows(short, dst, 10, 10, []float32{1, 1}) },
		"ScaleRows":           func() { k.ScaleRows(dst, 10, short, 10, 10, []float32{1, 1}) },
		"MixRows":             func() { k.MixRows(dst, 10, dst, 10, []float32{1, 1}, short, 10, []float32{1, 1}, 10) },
		"MixRows dst":         func() { k.MixRows(short, 10, dst, 10, []float32{1, 1}, dst, 10, []float32{1, 1}, 10) },
		"MixRows b":           func() { k.MixRows(dst, 10, dst, 10, []float32{1, 1}, dst, 10, []float32{1}, 10) },
		"ClearRows":           func() { k.ClearRows(short, 10, 2, 10) },
		"GELU":                func() { k.GELU(dst, short) },
		"GELUGrad":            func() { k.GELUGrad(dst, short, dst) },
		"ErfGELU":             func() { k.ErfGELU(dst, short) },
		"ErfGELUGrad":         func() { k.ErfGELUGrad(dst, short, dst) },
		"EluPlusOne":          func() { k.EluPlusOne(dst, short) },
		"EluPlusOneGrad":      func() { k.EluPlusOneGrad(dst, dst, short) },
		"AddRows":             func() { k.AddRows(dst, 10, short, 10, dst, 0, 2, 10) },
		"AddRows y":           func() { k.AddRows(dst, 10, dst, 10, short[:9:9], 0, 2, 10) },
		"AddRows dst":         func() { k.AddRows(short, 10, dst, 10, dst, 10, 2, 10) },
		"SumRows":             func() { k.SumRows(dst[:10], short, 10, 2) },
		"RowDots":             func() { k.RowDots(dst[:2], dst, 10, short, 10, 10) },
		"RowDots x":           func() { k.RowDots(dst[:2], short, 10, dst, 10, 10) },
		"TopTwo":              func() { k.TopTwo(short, 16, 16, dst, 0, scratch[:32], scratch[32:], make([]int32, 32)) },
		"TopTwo y":            func() { k.TopTwo(dst, 16, 16, short[:15:15], 0, scratch[:16], scratch[32:], make([]int32, 16)) },
		"TopTwo next":         func() { k.TopTwo(dst, 16, 16, dst, 0, scratch[:16], short[:15:15], make([]int32, 16)) },
		"TopTwo at":           func() { k.TopTwo(dst, 16, 16, dst, 0, scratch[:16], scratch[32:], make([]int32, 15)) },
		"LayerNorm":           func() { k.LayerNorm(dst, 10, short, 10, 2, 10, dst, nil, dst, 1) },
		"LayerNorm dst":       func() { k.LayerNorm(short, 10, dst, 10, 2, 10, dst, nil, dst, 1) },
		"LayerNorm gain":      func() { k.LayerNorm(dst, 0, dst, 0, 1, n, short, nil, dst, 1) },
		"LayerNorm bias":      func() { k.LayerNorm(dst, 0, dst, 0, 1, n, dst, short, dst, 1) },
		"LayerNorm stats":     func() { k.LayerNorm(dst, 1, dst, 1, 10, 2, dst, nil, short, 1) },
		"LayerNormGrad":       func() { k.LayerNormGrad(dst, 10, nil, nil, short, 10, dst, 10, 2, 10, dst, dst) },
		"LayerNormGrad dx":    func() { k.LayerNormGrad(short, 10, nil, nil, dst, 10, dst, 10, 2, 10, dst, dst) },
		"LayerNormGrad x":     func() { k.LayerNormGrad(dst, 10, nil, nil, dst, 10, short, 10, 2, 10, dst, dst) },
		"LayerNormGrad dgain": func() { k.LayerNormGrad(dst, 0, short, nil, dst, 0, dst, 0, 1, n, dst, dst) },
		"LayerNormGrad dbias": func() { k.LayerNormGrad(dst, 0, nil, short, dst, 0, dst, 0, 1, n, dst, dst) },
		"LayerNormGrad gain":  func() { k.LayerNormGrad(dst, 0, nil, nil, dst, 0, dst, 0, 1, n, short, dst) },
		"LayerNormGrad stats": func() { k.LayerNormGrad(dst, 1, nil, nil, dst, 1, dst, 1, 10, 2, dst, short) },
		"AdamW":               func() { k.AdamW(dst, dst, dst, short, step) },
		"Transpose":           func() { k.Transpose(dst, 4, short, 5, 4, 5) },
		"Block A":             func() { k.Block(2, 16, 10, short, 10, 1, scratch, 16, scratch, 16, false) },
		"Block B":             func() { k.Block(1, 16, 2, dst, 2, 1, short, 16, dst, 16, false) },
		"Block C":             func() { k.Block(2, 16, 1, dst, 1, 1, dst, 16, short, 16, false) },
	} {
		t.Run(name, func(t *testing.T) {
			var before [][]float32
			for i, x := range all {
				for j := range x {
					x[j] = float32(1000*i+j+2) / 64
				}
				before = append(before, slices.Clone(x))
			}
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
				for i, x := range all {
					// The block of pure Go checks each tile by itself.
					if written := !slices.Equal(x, before[i]); written && (k.Name != "generic" || name[:3] != "Blo") {
						t.Errorf("slice %d was written: %v", i, x)
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
	scratch, places := make([]float32, GemmScratch(n, n, n)), make([]int32, 4*Lanes)
	all := []routine{
		{"LayerNorm", func() { k.LayerNorm(c, n, a, n, 9, n, y, y, d, 1) }},
		{"LayerNormGrad", func() { k.LayerNormGrad(c, n, d, d, a, n, b, n, 9, n, y, x) }},
		{"AddRows", func() { k.AddRows(c, n, a, n, b, 0, n, n) }},
		{"SumRows", func() { k.SumRows(d, a, n, n) }},
		{"RowDots", func() { k.RowDots(d, a, n, b, n, n) }},
		{"TopTwo", func() { k.TopTwo(a, 64, 64, y[:64], 0, b[:4*Lanes], c, places) }},
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
