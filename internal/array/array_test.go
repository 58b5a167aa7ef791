package array

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
)

// must returns a valid array, or fails the test.
func must[T Element](t testing.TB, name string, data []T, shape ...int) *Array {
	t.Helper()
	a, err := New(name, data, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// refused checks that err contains each part of want.
func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// same reports whether two arrays are equal, bit for bit.
func same(a, b *Array) bool {
	var x, y bytes.Buffer
	if a.Encode(&x) != nil || b.Encode(&y) != nil {
		return false
	}
	return a.Name == b.Name && a.DType == b.DType && reflect.DeepEqual(a.Shape, b.Shape) && bytes.Equal(x.Bytes(), y.Bytes())
}

func TestNewChecksShape(t *testing.T) {
	data := make([]float32, 15)
	for _, shape := range [][]int{{15}, {3, 5}, {1, 5, 3, 1}} {
		a := must(t, "q", data, shape...)
		if a.DType != F4 || !reflect.DeepEqual(a.Shape, shape) {
			t.Errorf("New(%v) has dtype %v, shape %v", shape, a.DType, a.Shape)
		}
	}
	if a := must(t, "rate", []float64{0.5}); len(a.Shape) != 0 {
		t.Errorf("scalar has shape %v", a.Shape)
	}
	must(t, "nothing", []bool{}, 7, 0)

	tests := []struct {
		shape []int
		want  string
	}{
		{nil, "q: shape () has 1 elements, the data 15"},
		{[]int{3, 4}, "q: shape (3, 4) has 12 elements, the data 15"},
		{[]int{-3, -5}, "q: shape (-3, -5) has a negative dimension"},
		{[]int{0, 1 << 30, 1 << 30, 1 << 30}, "q: shape (0, 1073741824, 1073741824, 1073741824) is too large"},
		{make([]int, 65), "q: shape has 65 dimensions"},
	}
	for _, tt := range tests {
		_, err := New("q", data, tt.shape...)
		refused(t, err, tt.want)
	}
}

func TestShapeIsCopied(t *testing.T) {
	shape := []int{3, 5}
	a := must(t, "q", make([]float32, 15), shape...)
	shape[0] = 7
	if a.Shape[0] != 3 {
		t.Error("the array follows the caller's slice")
	}
}

func TestCountElementsRefusesOverflow(t *testing.T) {
	tests := []struct {
		shape []int
		n     int
		ok    bool
	}{
		{nil, 1, true},
		{[]int{7}, 7, true},
		{[]int{3, 5, 7}, 105, true},
		{[]int{3, 0, 7}, 0, true},
		{[]int{math.MaxInt / 8}, math.MaxInt / 8, true},
		{[]int{math.MaxInt/8 + 1}, 0, false},
		{[]int{math.MaxInt, math.MaxInt}, 0, false},
		{[]int{math.MaxInt, 0}, 0, false},
		{[]int{maxEmpty, 0}, 0, true},
		{[]int{maxEmpty + 1, 0}, 0, false},
		{[]int{5, -1}, 0, false},
	}
	for _, tt := range tests {
		n, err := CountElements(tt.shape)
		if n != tt.n || (err == nil) != tt.ok {
			t.Errorf("Count(%v) is %d, %v", tt.shape, n, err)
		}
	}
}

func TestConversionsWidenOrRefuse(t *testing.T) {
	f4 := must(t, "f4", []float32{0.1, -3}, 2)
	f8 := must(t, "f8", []float64{0.1, math.Inf(-1)}, 2)
	i4 := must(t, "i4", []int32{math.MinInt32, 7}, 2)
	i8 := must(t, "i8", []int64{math.MinInt64, 7}, 2)
	u1 := must(t, "u1", []uint8{0, 255}, 2)
	yes := must(t, "bool", []bool{false, true}, 2)
	wide := float64(float32(0.1))

	tests := []struct {
		a                          *Array
		float32, float64, int64, b any // nil where refused
	}{
		{f4, []float32{0.1, -3}, []float64{wide, -3}, nil, nil},
		{f8, []float32{0.1, float32(math.Inf(-1))}, []float64{0.1, math.Inf(-1)}, nil, nil},
		{i4, nil, nil, []int64{math.MinInt32, 7}, nil},
		{i8, nil, nil, []int64{math.MinInt64, 7}, nil},
		{u1, nil, nil, []int64{0, 255}, []bool{false, true}},
		{yes, nil, nil, nil, []bool{false, true}},
	}
	for _, tt := range tests {
		check := func(to string, got any, err error, want any) {
			t.Helper()
			if want == nil {
				refused(t, err, tt.a.Name+": dtype is "+tt.a.DType.String()+"; ", "is needed")
			} else if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s to %s: %v, %v, want %v", tt.a.Name, to, got, err, want)
			}
		}
		x, err := tt.a.Float32()
		check("Float32", x, err, tt.float32)
		y, err := tt.a.Float64()
		check("Float64", y, err, tt.float64)
		n, err := tt.a.Int64()
		check("Int64", n, err, tt.int64)
		b, err := tt.a.Bool()
		check("Bool", b, err, tt.b)
	}
}

func TestFloat32OutOfRange(t *testing.T) {
	a := must(t, "q", []float64{1, math.Inf(1), -1e39}, 3)
	_, err := a.Float32()
	refused(t, err, "q: element 2 is -1e+39, beyond the range of f4")
}

func TestErrorsKeepOddNames(t *testing.T) {
	_, err := must(t, "100%d", []bool{true}).Float32()
	refused(t, err, "100%d: dtype is bool")
	_, err = must(t, "", []bool{true}).Float32()
	refused(t, err, "array: dtype is bool")
}

func TestWritersRefuseTamperedArrays(t *testing.T) {
	a := must(t, "q", []float32{1, 2, 3}, 3)
	a.Shape = []int{4}
	refused(t, WriteNPY(&bytes.Buffer{}, a), "q: shape (4,) has 4 elements, the data 3")
	a = must(t, "q", []float32{1, 2, 3}, 3)
	a.DType = F8
	refused(t, a.Encode(&bytes.Buffer{}), "q: dtype is f8, the data f4")
	refused(t, WriteNPY(&bytes.Buffer{}, &Array{Name: "q"}), "q: dtype is DType(0)")
}

// Sizes around the codec's chunk, with all interesting bit patterns.
func TestDecodeInvertsEncode(t *testing.T) {
	nan := math.Float32frombits(0x7fa00001)
	for _, n := range []int{0, 1, chunkElements - 1, chunkElements, chunkElements + 1, 16*chunkElements + 3, 37*chunkElements + 5} {
		f4, f8, i4, i8 := make([]float32, n), make([]float64, n), make([]int32, n), make([]int64, n)
		u1, yes := make([]uint8, n), make([]bool, n)
		for i := range n {
			f4[i], f8[i] = float32(i)/7, -float64(i)/7
			i4[i], i8[i] = int32(-i), int64(i)<<33
			u1[i], yes[i] = uint8(i), i%3 == 0
		}
		if n > 0 {
			f4[n-1], f8[n-1] = nan, math.Copysign(0, -1)
		}
		for _, a := range []*Array{
			must(t, "", f4, n), must(t, "", f8, n), must(t, "", i4, n),
			must(t, "", i8, n), must(t, "", u1, n), must(t, "", yes, n),
		} {
			var b bytes.Buffer
			if err := a.Encode(&b); err != nil {
				t.Fatal(err)
			}
			if b.Len() != n*a.DType.Size() {
				t.Errorf("%d elements of %v are %d bytes", n, a.DType, b.Len())
			}
			b.WriteByte(0xff)
			got, err := Decode(&b, a.DType, a.Shape)
			if err != nil {
				t.Fatal(err)
			}
			if !same(got, a) {
				t.Errorf("%d elements of %v do not come back", n, a.DType)
			}
			if b.Len() != 1 {
				t.Errorf("%d elements of %v: %d bytes left, want 1", n, a.DType, b.Len())
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	_, err := Decode(strings.NewReader("12345"), F4, []int{3})
	refused(t, err, "truncated: 5 of 12 bytes")
	_, err = Decode(strings.NewReader(""), F8, []int{math.MaxInt / 16})
	refused(t, err, "truncated: 0 of ")
	_, err = Decode(strings.NewReader("12345"), 0, []int{3})
	refused(t, err, "dtype is DType(0)")
	_, err = Decode(strings.NewReader("12345"), F4, []int{-3})
	refused(t, err, "negative")
}
