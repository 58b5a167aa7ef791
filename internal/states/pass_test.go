//go:build !float64

package states

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/snapshot"
)

// arrays lists an array of each kind. Of rows, wide and padded, tokens at ≤ t < at+n of three are present.
type arrays struct {
	at, n          int
	flag           bool
	sum            float64
	counts         []int64
	flags          []bool
	packed, padded Buffer
	columns        []float32 // [2, stride 4]
	wide           []float64
	derived        []int32
	growing        []float64 // of any length
}

func newArrays() *arrays {
	return &arrays{counts: make([]int64, 2), flags: make([]bool, 6), packed: Buffer{make([]float32, 6), 1, 1}, padded: Buffer{make([]float32, 18), 2, 3},
		columns: make([]float32, 8), wide: make([]float64, 6), derived: make([]int32, 2)}
}

func filledArrays() *arrays {
	x := newArrays()
	x.at, x.n, x.flag, x.sum, x.growing = 1, 2, true, 0.1, []float64{1, 2, 3}
	for i := range 2 {
		x.counts[i], x.derived[i] = int64(i+3), int32(i+1)
		x.columns[i], x.columns[4+i] = float32(i+1), float32(i+11)
	}
	for t := x.at; t < x.at+x.n; t++ {
		x.flags[t], x.wide[t], x.packed.Data[t] = true, float64(t)/3, float32(t)
		x.padded.Data[3*t], x.padded.Data[3*t+1] = float32(-t), float32(10*t)
	}
	return x
}

func (x *arrays) visit(p *Pass) {
	x.n, x.flag, x.sum = p.Int(x.n), p.Flag(x.flag), p.Float(x.sum)
	p.TokenCounts(x.counts)
	p.Flags(x.flags, x.at, x.n, 3-x.n)
	p.Buffers(x.at, x.n, 3-x.n, x.packed, x.padded, Buffer{})
	p.Rows(x.columns, 4, 0, 2, x.n, 3-x.n)
	p.Wide(x.wide, x.at, x.n, 3-x.n)
	Derived(p, x.derived, 0, len(x.derived))
	Growing(p, &x.growing)
}

// present returns the numbers of the tokens that x has.
func (x *arrays) present() []any {
	flags, wide, packed, padded := x.flags[x.at:][:x.n], x.wide[x.at:][:x.n], x.packed.Data[x.at:][:x.n], x.padded.Data[3*x.at:][:3*x.n]
	return []any{x.n, x.flag, x.sum, x.counts, flags, wide, packed, padded, x.columns}
}

func TestPassReadsWhatItWrites(t *testing.T) {
	x := filledArrays()
	w := snapshot.NewWriter(nil)
	x.visit(&Pass{kind: writing, w: w})
	data, err := w.End()
	if err != nil {
		t.Fatal(err)
	}
	for tokens, want := range map[int64]string{4: "", 3: "a count is 4, of 3 tokens"} {
		r, err := snapshot.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		y := newArrays()
		y.visit(&Pass{kind: reading, r: r, Tokens: tokens})
		err = r.End()
		if want == "" && (err != nil || !reflect.DeepEqual(x.present(), y.present())) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("of %d tokens: read %v, error %v, wrote %v", tokens, y.present(), err, x.present())
		}
	}
}

func TestPassCopiesMeasuresAndClears(t *testing.T) {
	x, y := filledArrays(), newArrays()
	p := &Pass{kind: listing}
	x.visit(p)
	p.kind = copying
	y.visit(p)
	if !reflect.DeepEqual(x.present(), y.present()) || !slices.Equal(x.derived, y.derived) || !slices.Equal(x.growing, y.growing) || len(p.parts) > 0 {
		t.Errorf("copied %v, want %v", y.present(), x.present())
	}
	x.derived[0], x.padded.Data[3], x.growing[0] = 9, 9, 9
	if y.derived[0] == 9 || y.padded.Data[0] == 9 || y.growing[0] == 9 {
		t.Error("a copy shares memory")
	}
	p = &Pass{kind: measuring}
	x.visit(p)
	if want := int64(8*2 + 6 + 4*6 + 4*18 + 4*8 + 8*6 + 4*2 + 8*3); p.bytes != want {
		t.Errorf("%d bytes, want %d", p.bytes, want)
	}
	x.visit(&Pass{kind: clearing})
	y = newArrays()
	y.growing = make([]float64, 3)
	if y.at, y.n, y.flag, y.sum = x.at, x.n, x.flag, x.sum; !reflect.DeepEqual(x, y) {
		t.Errorf("cleared %v", x)
	}
}

func TestPassInterleavesBuffers(t *testing.T) {
	a, b := Buffer{[]float32{1, 2}, 1, 1}, Buffer{[]float32{3, 4, 0, 5, 6, 0}, 2, 3}
	w := snapshot.NewWriter(nil)
	start := len(w.Data)
	(&Pass{kind: writing, w: w}).Interleaved(2, 1, a, b)
	if want := snapshot.AppendElements(nil, []float32{1, 3, 4, 2, 5, 6, 0, 0, 0}); !slices.Equal(w.Data[start:], want) {
		t.Errorf("wrote % x, want % x", w.Data[start:], want)
	}
}

// counted is a state of one array.
type counted struct {
	Visited
	x []float32
}

func (s *counted) Visit(p *Pass) { p.Elements(s.x) }

func TestBytesDoesNotAllocate(t *testing.T) {
	s := &counted{x: make([]float32, 3, 5)}
	if n := Bytes(s); n != 20 {
		t.Errorf("%d bytes, want 20", n)
	}
	if n := testing.AllocsPerRun(100, func() { Bytes(s) }); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}
