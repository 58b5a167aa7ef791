package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/cli/attend"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/problem"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// random returns n numbers that are the same for the same seed.
func random(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func made[T array.Element](t *testing.T, name string, data []T, shape ...int) *array.Array {
	t.Helper()
	a, err := array.New(name, data, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// normal is an array of random numbers.
func normal(t *testing.T, name string, seed uint64, shape ...int) *array.Array {
	t.Helper()
	n, err := array.CountElements(shape)
	if err != nil {
		t.Fatal(err)
	}
	return made(t, name, random(seed, n), shape...)
}

// written puts arrays into a file in the format of its suffix.
func written(t *testing.T, name string, list ...*array.Array) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write, err := problem.WriterFor(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := write(&b, list); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns the arrays of a file by their names.
func read(t *testing.T, path string) map[string]*array.Array {
	t.Helper()
	src, err := problem.OpenArrays(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m := map[string]*array.Array{}
	for _, n := range src.Names() {
		if m[n], err = src.ReadArray(n); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// tolerances are what arrays of a call may err by (docs/numerics.md), for the textbook's result of it.
type tolerances struct {
	limits         check.Limits
	cond, v, do, o float64 // the largest condition, value, gradient of outputs and output
}

// tolerancesOf returns the tolerances of a form of a mechanism of degree p, whose linear form adds packed
// features of width d; "softmax" of all forms of softmax.
func tolerancesOf(form string, p, d int, c *oracle.Call, want *oracle.Result, do []float32) tolerances {
	t := tolerances{check.LinearLimits[float32]((d+1)*(d+2)/2, c.K.N), max(1, check.MaxAbs(want.Cond)), check.MaxAbs(c.V.Data), check.MaxAbs(do), check.MaxAbs(want.O.Data)}
	switch form {
	case "direct":
		t.limits = check.DirectLimits[float32](p)
	case "softmax":
		t.limits = check.SoftmaxLimits[float32]()
	}
	return t
}

func (t tolerances) output() float64 { return t.limits.Output(t.cond, t.v+t.o) }

// gradient returns the tolerance of gradients that are sums over so many rows of which terms may cancel.
func (t tolerances) gradient(want []float64, rows int) float64 {
	return t.limits.Gradient(t.cond, max(check.MaxAbs(want), t.do*t.v)) * float64(rows)
}

// near compares an array with the textbook's numbers.
func near(t *testing.T, what string, got *array.Array, shape []int, want []float64, tolerance float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is not written", what)
		return
	}
	if !slices.Equal(got.Shape, shape) {
		t.Errorf("%s has shape %v, want %v", what, got.Shape, shape)
		return
	}
	x, err := got.Float64()
	if err != nil {
		t.Error(err)
		return
	}
	for i := range x {
		if !(math.Abs(x[i]-want[i]) <= tolerance) {
			t.Errorf("%s: element %d is %g, want %g", what, i, x[i], want[i])
			return
		}
	}
}

func wide(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// TestAttend runs a grouped causal problem with M > N, Dv ≠ D and a key mask
// through every form, format and rank, and compares with the
// textbook.
func TestAttend(t *testing.T) {
	const h, hkv, n, m, d, dv = 4, 2, 5, 7, 3, 6
	q, k, v, do := random(1, h*n*d), random(2, hkv*m*d), random(3, hkv*m*dv), random(4, h*n*dv)
	tau := []float32{0.5, 1, 1.5, 2}
	mask := []uint8{1, 1, 0, 1, 1, 1, 0}
	book := oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Tau: wide(tau), Coef: oracle.TaylorCoef(2)}
	call := &oracle.Call{
		Q: oracle.HeadsOf(wide(q), 1, h, n, d), K: oracle.HeadsOf(wide(k), 1, hkv, m, d), V: oracle.HeadsOf(wide(v), 1, hkv, m, dv),
		Causal: true,
	}
	for _, x := range mask {
		call.KeyMask = append(call.KeyMask, x != 0)
	}
	want := book.Forward(call)
	grads := book.Backward(call, oracle.HeadsOf(wide(do), 1, h, n, dv))

	for _, batch := range [][]int{{}, {1}} {
		shape := func(s ...int) []int { return append(slices.Clone(batch), s...) }
		in := []*array.Array{
			made(t, "q", q, shape(h, n, d)...), made(t, "k", k, shape(hkv, m, d)...), made(t, "v", v, shape(hkv, m, dv)...),
			made(t, "do", do, shape(h, n, dv)...), made(t, "tau", tau, h), made(t, "keymask", mask, m),
			made(t, "spare", []int32{1}),
		}
		for _, suffix := range []string{".npz", ".safetensors"} {
			file := written(t, "in"+suffix, in...)
			for _, form := range []string{"auto", "direct", "linear", "step"} {
				within := tolerancesOf(form, 2, d, call, want, do)
				name := strings.Join([]string{form, suffix}, " ")
				out := filepath.Join(t.TempDir(), "out"+suffix)
				status, _, errs := command(t, "attend", "--mechanism", "taylorshift", "--causal", "--grad",
					"--form", form, file, out)
				if status != 0 || errs != "farfield: not used: spare\n" {
					t.Fatalf("%s: status %d, %q", name, status, errs)
				}
				got := read(t, out)
				near(t, name+" o", got["o"], shape(h, n, dv), want.O.Data, within.output())
				near(t, name+" dq", got["dq"], shape(h, n, d), grads.DQ.Data, within.gradient(grads.DQ.Data, 1))
				near(t, name+" dk", got["dk"], shape(hkv, m, d), grads.DK.Data, within.gradient(grads.DK.Data, 1))
				near(t, name+" dv", got["dv"], shape(hkv, m, dv), grads.DV.Data, within.gradient(grads.DV.Data, 1))
				near(t, name+" d_tau", got["d_tau"], []int{h}, grads.DTau, within.gradient(grads.DTau, n))
				if len(got) != 5 {
					t.Errorf("%s: %d arrays are written, want 5", name, len(got))
				}
			}
		}
	}
}

// TestAttendDecay has a decay of each key head, or one that all of them share,
// whose gradient is the sum of theirs.
func TestAttendDecay(t *testing.T) {
	const h, hkv, n, d, dv = 4, 2, 9, 3, 2
	q, k, v, do := random(1, h*n*d), random(2, hkv*n*d), random(3, hkv*n*dv), random(4, h*n*dv)
	logG := random(5, hkv*n)
	for i, x := range logG {
		logG[i] = -x * x
	}
	for _, shared := range []bool{false, true} {
		g, shape := logG, []int{hkv, n}
		if shared {
			g, shape = logG[:n], []int{n}
		}
		call := &oracle.Call{
			Q: oracle.HeadsOf(wide(q), 1, h, n, d), K: oracle.HeadsOf(wide(k), 1, hkv, n, d), V: oracle.HeadsOf(wide(v), 1, hkv, n, dv),
			LogG: oracle.HeadsOf(slices.Repeat(wide(g), hkv*n/len(g)), 1, hkv, n, 1), Causal: true,
		}
		file := written(t, "in.npz", made(t, "q", q, h, n, d), made(t, "k", k, hkv, n, d), made(t, "v", v, hkv, n, dv),
			made(t, "do", do, h, n, dv), made(t, "log_g", g, shape...))
		for name, book := range map[string]oracle.Mechanism{
			"fastmax": {Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2)}, "softmax": {Exp: true},
		} {
			want := book.Forward(call)
			grads := book.Backward(call, oracle.HeadsOf(wide(do), 1, h, n, dv))
			sum := make([]float64, len(g))
			for i, x := range grads.DLogG.Data {
				sum[i%len(sum)] += x
			}
			for _, form := range []string{"auto", "direct", "linear", "step"} {
				if form == "linear" && book.Exp {
					continue
				}
				out := filepath.Join(t.TempDir(), "out.npz")
				works(t, "attend", "--mechanism", name, "--causal", "--grad", "--form", form, file, out)
				got := read(t, out)
				limits := form
				if book.Exp {
					limits = name
				}
				within := tolerancesOf(limits, 2, d, call, want, do)
				near(t, name+" "+form+" o", got["o"], []int{h, n, dv}, want.O.Data, within.output())
				near(t, name+" "+form+" dv", got["dv"], []int{hkv, n, dv}, grads.DV.Data, within.gradient(grads.DV.Data, 1))
				near(t, name+" "+form+" d_log_g", got["d_log_g"], shape, sum, within.gradient(sum, n))
			}
		}
		refuses(t, "log_g: decay needs a causal call", "attend", "--mechanism", "fastmax", file, filepath.Join(t.TempDir(), "out.npz"))
	}
}

// TestAttendStepUnmasked absorbs all keys, then reads.
func TestAttendStepUnmasked(t *testing.T) {
	const n, m, d = 9, 6, 4
	q, k, v := random(1, n*d), random(2, m*d), random(3, m*d)
	call := &oracle.Call{Q: oracle.HeadsOf(wide(q), 1, 1, n, d), K: oracle.HeadsOf(wide(k), 1, 1, m, d), V: oracle.HeadsOf(wide(v), 1, 1, m, d)}
	want := fastmaxBook.Forward(call)
	file, out := written(t, "in.npz", made(t, "q", q, n, d), made(t, "k", k, m, d), made(t, "v", v, m, d)), filepath.Join(t.TempDir(), "out.npz")
	for _, form := range []string{"direct", "step"} {
		works(t, "attend", "--mechanism", "fastmax", "--form", form, file, out)
		near(t, form+" o", read(t, out)["o"], []int{n, d}, want.O.Data, tolerancesOf(form, 2, d, call, want, nil).output())
	}
}

// fastmaxBook is the textbook of fastmax.
var fastmaxBook = &oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2)}

// TestAttendSequences packs two sequences, and pads them, and gets the same.
func TestAttendSequences(t *testing.T) {
	const d = 3
	q, k, v := random(1, 7*d), random(2, 7*d), random(3, 7*d)
	dir := t.TempDir()
	packed := filepath.Join(dir, "packed.npz")
	works(t, "attend", "--mechanism", "fastmax", "--causal", written(t, "in.npz",
		made(t, "q", q, 1, 7, d), made(t, "k", k, 1, 7, d), made(t, "v", v, 1, 7, d),
		made(t, "cu_q", []int32{0, 3, 7}, 3), made(t, "cu_k", []int64{0, 3, 7}, 3)), packed)
	whole, err := read(t, packed)["o"].Float64()
	if err != nil {
		t.Fatal(err)
	}
	// The second sequence alone, after padding: 4 queries, 4 of 6 keys, which
	// an unmasked call sees at any place.
	alone := filepath.Join(dir, "alone.npz")
	pad := func(x []float32) []float32 { return append(slices.Clone(x[3*d:]), 9, 9, 9, 9, 9, 9) }
	works(t, "attend", "--mechanism", "fastmax", written(t, "in.npz",
		made(t, "q", q[6*d:], 1, d), made(t, "k", pad(k), 6, d), made(t, "v", pad(v), 6, d),
		made(t, "key_lengths", []int64{4})), alone)
	call := &oracle.Call{Q: oracle.HeadsOf(wide(q[6*d:]), 1, 1, 1, d), K: oracle.HeadsOf(wide(k[3*d:]), 1, 1, 4, d), V: oracle.HeadsOf(wide(v[3*d:]), 1, 1, 4, d)}
	within := tolerancesOf("auto", 2, d, call, fastmaxBook.Forward(call), nil)
	near(t, "o", read(t, alone)["o"], []int{1, d}, whole[6*d:], 2*within.output()) // both err
}

// TestAttendKeep forbids all keys but one, whose value is then the output.
func TestAttendKeep(t *testing.T) {
	v := random(3, 5*2)
	keep := make([]bool, 4*5)
	for i := range 4 {
		keep[i*5+i+1] = true
	}
	file := written(t, "in.safetensors", normal(t, "q", 1, 4, 3), normal(t, "k", 2, 5, 3), made(t, "v", v, 5, 2), made(t, "attn_keep", keep, 4, 5))
	for _, name := range []string{"softmax", "fastmax"} {
		out := filepath.Join(t.TempDir(), "out.npz")
		works(t, "attend", "--mechanism", name, file, out)
		near(t, name, read(t, out)["o"], []int{4, 2}, wide(v[2:]), 4*0x1p-24*check.MaxAbs(v)) // a product, a sum, a reciprocal and a product
	}
	refuses(t, "attn_keep: not defined in the linear form", "attend", "--mechanism", "fastmax", "--form", "linear", file, filepath.Join(t.TempDir(), "out.npz"))
}

func TestAttendJSON(t *testing.T) {
	file := written(t, "in.npz", normal(t, "q", 1, 6, 4), normal(t, "k", 2, 4, 4), normal(t, "v", 3, 4, 4))
	out := works(t, "attend", "--mechanism", "fastmax", "--causal", "--form", "linear", "--json", file, filepath.Join(t.TempDir(), "o.npz"))
	var r attend.Report
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Mechanism != "fastmax" || r.Form != "linear" || r.Chunk == 0 || r.Features != 15 || r.FLOPs <= 0 || r.Seconds <= 0 || r.PeakBytes <= 0 || r.ISA == "" {
		t.Errorf("%+v", r)
	}
	// Two queries come before the first key.
	if !r.Counted || r.UnseenRows != 2 {
		t.Errorf("%d unseen rows, want 2", r.UnseenRows)
	}
}

// TestAttendNonfinite lets NaN pass where it is allowed; a masked key's has no
// effect.
func TestAttendNonfinite(t *testing.T) {
	k := random(2, 3*2)
	k[4] = float32(math.NaN())
	file := written(t, "in.npz", normal(t, "q", 1, 3, 2), made(t, "k", k, 3, 2), normal(t, "v", 3, 3, 2), made(t, "keymask", []bool{true, true, false}, 3))
	out := filepath.Join(t.TempDir(), "out.npz")
	refuses(t, "k: element [2,0] is NaN", "attend", "--mechanism", "fastmax", file, out)
	works(t, "attend", "--mechanism", "fastmax", "--allow-nonfinite", file, out)
	o, err := read(t, out)["o"].Float64()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range o {
		if math.IsNaN(x) {
			t.Fatalf("o is %v", o)
		}
	}
}

// TestAttendSaysOverflow has rows whose products float32 does not hold: an error, and
// nothing written, or written with a word.
func TestAttendSaysOverflow(t *testing.T) {
	large := []float32{1, 1, 1, 1e20, 1, 1}
	in := written(t, "in.npz", made(t, "q", large, 3, 2), made(t, "k", large, 3, 2), normal(t, "v", 3, 3, 2))
	dir := t.TempDir()
	for i, args := range [][]string{{"--form", "direct"}, {"--form", "linear"}, {"--form", "step"}} {
		out := filepath.Join(dir, string(rune('a'+i))+".npz")
		args = append([]string{"attend", "--mechanism", "based", "--causal"}, append(args, in, out)...)
		status, _, errs := command(t, args...)
		if status != env.StatusFailure || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "o: 2 of 3 rows are not finite, the first is row 1 of head 0 of batch row 0") {
			t.Errorf("%v: status %d: %s", args, status, errs)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%v: something is written", args)
		}
		status, _, errs = command(t, append(args, "--allow-nonfinite")...)
		if status != 0 || !strings.Contains(errs, "o: 2 of 3 rows are not finite") {
			t.Errorf("%v: allowed: status %d: %s", args, status, errs)
		}
	}

	stream := written(t, "in.safetensors", made(t, "q", large, 1, 1, 3, 2), made(t, "k", large, 1, 1, 3, 2), normal(t, "v", 3, 1, 1, 3, 2))
	args := []string{"attend", "--mechanism", "based", "--causal", "--stream", stream, filepath.Join(dir, "o.npy")}
	if status, _, errs := command(t, args...); status != env.StatusFailure || !strings.Contains(errs, "o: 2 of 3 rows are not finite, the first is query 1") {
		t.Errorf("%v: status %d: %s", args, status, errs)
	}
	if status, _, errs := command(t, append(args, "--allow-nonfinite")...); status != 0 || !strings.Contains(errs, "o: 2 rows are not finite") {
		t.Errorf("%v: allowed: status %d: %s", args, status, errs)
	}
}

func TestAttendRefuses(t *testing.T) {
	q, k, v := normal(t, "q", 1, 2, 5, 4), normal(t, "k", 2, 2, 6, 4), normal(t, "v", 3, 2, 6, 3)
	bad := func(list ...*array.Array) []*array.Array {
		all := []*array.Array{q, k, v}
		for _, a := range list {
			if i := slices.IndexFunc(all, func(b *array.Array) bool { return b.Name == a.Name }); i >= 0 {
				all[i] = a
			} else {
				all = append(all, a)
			}
		}
		return all
	}
	inf := random(1, 2*5*4)
	inf[27] = float32(math.Inf(-1))
	tests := []struct {
		name, want string
		arrays     []*array.Array
		args       string
	}{
		{"missing array", "k: missing; ", []*array.Array{q, v}, ""},
		{"width", "k: D is 5, q has 4", bad(normal(t, "k", 1, 2, 6, 5)), ""},
		{"keys", "v: M is 7, k has 6", bad(normal(t, "v", 1, 2, 7, 3)), ""},
		{"heads", "k: H is 3, which does not divide the 2 of q", bad(normal(t, "k", 1, 3, 6, 4)), ""},
		{"value heads", "v: H is 1, k has 2", bad(normal(t, "v", 1, 1, 6, 3)), ""},
		{"dimensions", "k: has 2 dimensions, q has 3", bad(normal(t, "k", 1, 6, 4)), ""},
		{"five dimensions", "q: has 5 dimensions", bad(normal(t, "q", 1, 1, 1, 2, 5, 4)), ""},
		{"batch", "k: B is 2, q has 1", []*array.Array{normal(t, "q", 1, 1, 2, 5, 4), normal(t, "k", 1, 2, 2, 6, 4), normal(t, "v", 1, 2, 2, 6, 3)}, ""},
		{"no width", "q: the last dimension is 0", bad(normal(t, "q", 1, 2, 5, 0)), ""},
		{"integers", "v: dtype is i4; f4 or f8 is needed", bad(made(t, "v", make([]int32, 36), 2, 6, 3)), ""},
		{"infinity", "q: element [1,1,3] is -Inf", bad(made(t, "q", inf, 2, 5, 4)), ""},
		{"beyond float32", "q: element 0 is 1e+300", bad(made(t, "q", slices.Repeat([]float64{1e300}, 40), 2, 5, 4)), ""},
		{"keymask", "keymask: shape is [5], needs (B,M) or (M) = [1 6]", bad(made(t, "keymask", make([]bool, 5), 5)), ""},
		{"keymask type", "keymask: dtype is f4; u1 or bool is needed", bad(normal(t, "keymask", 1, 6)), ""},
		{"attn_keep", "attn_keep: shape is [6 5], needs (N,M) = [5 6]", bad(made(t, "attn_keep", make([]bool, 30), 6, 5)), ""},
		{"log_g", "log_g: shape is [2 5], needs (B,H,M), (H,M) or (M) of k = [1 2 6]", bad(normal(t, "log_g", 1, 2, 5)), "--causal"},
		{"growth", "log_g: row 0, head 0, token 1 is 0.5, needs to be finite and 0 or less",
			bad(made(t, "log_g", []float32{0, 0.5, 0, 0, 0, 0}, 6)), "--causal"},
		{"key_lengths", "key_lengths: row 0 is 7, M is 6", bad(made(t, "key_lengths", []int64{7}, 1)), ""},
		{"key_lengths count", "key_lengths: has 2 elements, B is 1", bad(made(t, "key_lengths", []int64{1, 2}, 2)), ""},
		{"key_lengths type", "key_lengths: dtype is f4", bad(normal(t, "key_lengths", 1, 1)), ""},
		{"cu_q alone", "cu_k: missing; cu_q needs it", bad(made(t, "cu_q", []int64{0, 5}, 2)), ""},
		{"cu_q start", "cu_q: offset 0 is 1, needs 0", bad(made(t, "cu_q", []int64{1, 5}, 2), made(t, "cu_k", []int64{0, 6}, 2)), ""},
		{"cu_q order", "cu_q: offset 2 is 2, after 3", bad(made(t, "cu_q", []int64{0, 3, 2, 5}, 4), made(t, "cu_k", []int64{0, 2, 4, 6}, 4)), ""},
		{"cu_k end", "cu_k: the last offset is 5, there are 6 tokens", bad(made(t, "cu_q", []int64{0, 5}, 2), made(t, "cu_k", []int64{0, 5}, 2)), ""},
		{"cu count", "cu_k: has 2 offsets, cu_q has 3", bad(made(t, "cu_q", []int64{0, 1, 5}, 3), made(t, "cu_k", []int64{0, 6}, 2)), ""},
		{"cu and lengths", "key_lengths: not defined with packed sequences", bad(made(t, "cu_q", []int64{0, 5}, 2), made(t, "cu_k", []int64{0, 6}, 2), made(t, "key_lengths", []int64{6}, 1)), ""},
		{"no gradient", "do: missing", bad(), "--grad"},
		{"gradient", "do: Dv is 4, the output has 3", bad(normal(t, "do", 1, 2, 5, 4)), "--grad"},
		{"gradient by its other name", "go: N is 6, the output has 5", bad(normal(t, "go", 1, 2, 6, 3)), "--grad"},
		{"gradient twice", "go: given beside do", bad(normal(t, "go", 1, 2, 5, 3), normal(t, "do", 1, 2, 5, 3)), "--grad"},
		{"parameter", "tau: shape is [3], needs [2]", bad(normal(t, "tau", 1, 3)), "--mechanism taylorshift"},
		{"order", "--order: 0 is less than 1", bad(), "--order 0"},
		{"order above the highest", "multipole: order 3: needs to be 0 to 2", bad(), "--mechanism multipole --order 3"},
		{"order below 0", "--order: -1 is less than 0", bad(), "--mechanism multipole --order=-1"},
		{"order of softmax", "softmax: order 2: it has no order", bad(), "--mechanism softmax --order 2"},
		{"setting", "fastmax: setting colour=red: unknown; allowed: scale, bounded", bad(), "--set colour=red"},
		{"future", "causal: polynomial with norm max is not causal", bad(), "--mechanism polynomial --set norm=max --causal"},
		{"coefficients", "polynomial: setting coef=1,x: needs 2 to 34 numbers", bad(), "--mechanism polynomial --set coef=1,x"},
		{"form", "form: softmax has no linear form", bad(), "--mechanism softmax --form linear"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			file := written(t, "in.npz", c.arrays...)
			out := filepath.Join(filepath.Dir(file), "out.npz")
			args := append([]string{"attend", "--mechanism", "fastmax"}, strings.Fields(c.args)...)
			if strings.Contains(c.args, "--mechanism") {
				args = append(args[:1], args[3:]...)
			}
			refuses(t, c.want, append(args, file, out)...)
			if _, err := os.Stat(out); err == nil {
				t.Error("something is written")
			}
		})
	}
}

func TestAttendRefusesFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := written(t, "in.npz", normal(t, "q", 1, 3, 2), normal(t, "k", 2, 3, 2), normal(t, "v", 3, 3, 2))
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	// The first number of q follows its header, which ends with a line.
	changed := slices.Clone(content)
	changed[bytes.Index(changed, []byte(" \n"))+2] ^= 1
	tensors := written(t, "in.safetensors", normal(t, "q", 1, 3, 2))
	half, err := os.ReadFile(tensors)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.npz")
	for _, c := range []struct{ want, in, out string }{
		{"none.npz: no such file", filepath.Join(dir, "none.npz"), out},
		{"the suffix is \".txt\"", put("in.txt", nil), out},
		{"the suffix is \".npy\"", good, filepath.Join(dir, "out.npy")},
		{"no such file or directory", good, filepath.Join(dir, "none", "out.npz")},
		{"not a readable .npz", put("cut.npz", content[:len(content)/2]), out},
		{"beyond the end", put("cut.safetensors", half[:20]), out},
		{"data ends at", put("short.safetensors", half[:len(half)-1]), out},
		{"checksum", put("changed.npz", changed), out},
		{"k: missing", put("half.npz", archive(t, ">f2")), out},
		{"q: dtype |O is pickled", put("pickled.npz", archive(t, "|O")), out},
	} {
		refuses(t, c.want, "attend", "--mechanism", "fastmax", c.in, c.out)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something is written")
	}
}

// Inputs of 16 bits give the results of their values in 32 bits.
func TestAttendWidens(t *testing.T) {
	const n, d = 5, 4
	for _, dtype := range []string{"BF16", "F16"} {
		header, data := map[string]any{}, []byte{}
		var same []*array.Array
		for i, name := range []string{"q", "k", "v"} {
			x := make([]float32, n*d)
			for j := range x {
				bits := uint16(0x3c00 + 401*i + 97*j*(1-2*(j%2))) // between 2⁻⁴ and 4 in either format
				data = binary.LittleEndian.AppendUint16(data, bits)
				if x[j] = tensor.BFloat16(bits); dtype == "F16" {
					x[j] = tensor.Float16(bits)
				}
			}
			header[name] = map[string]any{"dtype": dtype, "shape": []int{n, d}, "data_offsets": []int{2 * i * n * d, 2 * (i + 1) * n * d}}
			same = append(same, problem.NewArray(name, x, []int{n, d}))
		}
		text, err := json.Marshal(header)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "in.safetensors")
		file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), append(text, data...)...)
		if err := os.WriteFile(path, file, 0o666); err != nil {
			t.Fatal(err)
		}
		var got [2][]byte
		for i, in := range []string{path, written(t, "in.safetensors", same...)} {
			out := filepath.Join(t.TempDir(), "out.safetensors")
			works(t, "attend", "--mechanism", "fastmax", "--causal", in, out)
			if got[i], err = os.ReadFile(out); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got[0], got[1]) {
			t.Errorf("%s: the output differs from that of the same numbers in F32", dtype)
		}
	}
}

func TestAttendDiagnoses(t *testing.T) {
	in := written(t, "in.npz", normal(t, "q", 1, 2, 9, 4), normal(t, "k", 2, 2, 9, 4), normal(t, "v", 3, 2, 9, 4))
	out := filepath.Join(t.TempDir(), "out.npz")
	text := works(t, "attend", "--mechanism", "fastmax", "--order", "1", "--causal", "--diagnose", in, out)
	if lines := strings.Split(strings.TrimSpace(text), "\n"); len(lines) != 3 || !strings.Contains(lines[0], "smallest denominator") {
		t.Errorf("printed:\n%s", text)
	}
	var report struct {
		Form      string
		Weak      int64 `json:"weak_rows"`
		Diagnosis []struct {
			Head      int
			Queries   int64
			Weak      int64 `json:"weak_rows"`
			Condition float64
			Least     float64 `json:"least_entropy"`
		}
	}
	text = works(t, "attend", "--mechanism", "fastmax", "--order", "1", "--causal", "--diagnose", "--json", in, out)
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Diagnosis) != 2 || report.Form == "" {
		t.Fatalf("reported: %+v", report)
	}
	var weak int64
	for h, d := range report.Diagnosis {
		weak += d.Weak
		if d.Head != h || d.Queries != 9 || !(d.Condition > 1) || d.Least > 1e-12 { // the first query sees one key
			t.Errorf("head %d: %+v", h, d)
		}
	}
	if weak != report.Weak {
		t.Errorf("%d doubtful rows in heads, %d in all", weak, report.Weak)
	}
}

// A diagnosis of multipole has the distance of keys from the codebook, and of order 1 the share of
// negative weights.
func TestAttendDiagnosesCells(t *testing.T) {
	in := written(t, "in.npz", normal(t, "q", 1, 2, 90, 4), normal(t, "k", 2, 2, 90, 4), normal(t, "v", 3, 2, 90, 4), normal(t, "codebook", 4, 2, 3, 4))
	for order, wild := range []bool{false, true} {
		text := works(t, "attend", "--mechanism", "multipole", "--order", strconv.Itoa(order), "--set", "block=8", "--set", "window=0", "--set", "cells=3", "--diagnose", in, filepath.Join(t.TempDir(), "out.npz"))
		if !strings.Contains(text, "keys from centres") || strings.Contains(text, "wild weights") != wild {
			t.Errorf("order %d: printed:\n%s", order, text)
		}
	}
}

// archive is an .npz with one array q of four bytes, of the type that numpy
// calls descr.
func archive(t *testing.T, descr string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("q.npy")
	if err != nil {
		t.Fatal(err)
	}
	header := "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (1, 1), }\n"
	if _, err := io.WriteString(w, "\x93NUMPY\x01\x00"+string(rune(len(header)))+"\x00"+header+"1234"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAttendFailsToWrite is a failure, not bad input.
func TestAttendFailsToWrite(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	file := written(t, "in.npz", normal(t, "q", 1, 3, 2), normal(t, "k", 2, 3, 2), normal(t, "v", 3, 3, 2))
	out := filepath.Join(t.TempDir(), "out.npz")
	if err := os.Symlink("/dev/full", out); err != nil {
		t.Skip(err)
	}
	status, _, errs := command(t, "attend", "--mechanism", "fastmax", file, out)
	if status != env.StatusFailure || !strings.Contains(errs, "no space") {
		t.Errorf("status %d, %q", status, errs)
	}
}
