package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
)

var _ array.Source = (*File)(nil)

// file returns a file of header and data.
func file(header, data string) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + data
}

func open(s string) (*File, error) { return New(strings.NewReader(s), int64(len(s))) }

func must[T array.Element](t testing.TB, name string, data []T, shape ...int) *array.Array {
	t.Helper()
	a, err := array.New(name, data, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// refused checks that err contains want.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q does not say %q", err, want)
	}
}

func same(a, b *array.Array) bool {
	var x, y bytes.Buffer
	if a.Encode(&x) != nil || b.Encode(&y) != nil {
		return false
	}
	return a.Name == b.Name && a.DType == b.DType && reflect.DeepEqual(a.Shape, b.Shape) && bytes.Equal(x.Bytes(), y.Bytes())
}

// golden is a file in the layout of the reference implementation: metadata first, trailing blanks,
// wide elements before narrow ones.
const golden = "\xc8\x00\x00\x00\x00\x00\x00\x00" +
	`{"__metadata__":{"format":"pt"},` +
	`"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},` +
	`"h":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},` +
	`"b":{"dtype":"BOOL","shape":[],"data_offsets":[14,15]}}` +
	"   " +
	"\x00\x00\x80\x3f\x00\x00\x20\xc0" + "\x80\x3f\x00\x40\x40\x40" + "\x01"

func TestReadsWhatIsAskedFor(t *testing.T) {
	f, err := open(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Names(), []string{"w", "h", "b"}; !slices.Equal(got, want) {
		t.Errorf("names are %q, want %q", got, want)
	}
	if got := f.Metadata(); !maps.Equal(got, map[string]string{"format": "pt"}) {
		t.Errorf("metadata is %v", got)
	}
	want := []Tensor{
		{Name: "w", DType: "F32", Shape: []int{1, 2}, Bytes: 8},
		{Name: "h", DType: "BF16", Shape: []int{3}, Bytes: 6, start: 8},
		{Name: "b", DType: "BOOL", Shape: []int{}, Bytes: 1, start: 14},
	}
	if got := f.Tensors(); !reflect.DeepEqual(got, want) {
		t.Errorf("tensors are %v, want %v", got, want)
	}
	if w, err := f.ReadArray("w"); err != nil || !same(w, must(t, "w", []float32{1, -2.5}, 1, 2)) {
		t.Errorf("w is %v, %v", w, err)
	}
	if b, err := f.ReadArray("b"); err != nil || !same(b, must(t, "b", []bool{true})) {
		t.Errorf("b is %v, %v", b, err)
	}
	if h, err := f.ReadArray("h"); err != nil || !same(h, must(t, "h", []float32{1, 2, 3}, 3)) {
		t.Errorf("h is %v, %v", h, err)
	}
	_, err = f.ReadArray("q")
	refused(t, err, "q: no such tensor")
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// one returns a header with a single tensor.
func one(dtype, shape, offsets string) string {
	return fmt.Sprintf(`{"q":{"dtype":%s,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
}

func TestAcceptsValidHeaders(t *testing.T) {
	tests := []struct{ name, header, data string }{
		{"no tensors", `{}`, ""},
		{"blanks behind", `{}      `, ""},
		{"no metadata", `{"__metadata__":{}}`, ""},
		{"empty tensor", one(`"F32"`, `[7,0]`, `[0,0]`), ""},
		{"unknown key", `{"q":{"shape":[1],"x":{"y":[null]},"data_offsets":[0,1],"dtype":"U8"}}`, "1"},
		{"any order", `{"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, "123"},
		{"empty between", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"z":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, "12"},
		{"unknown type", one(`"F4"`, `[3]`, `[0,2]`), "12"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := open(file(tt.header, tt.data)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnreadableTypesAreListedAndRefused(t *testing.T) {
	f, err := open(file(`{"a":{"dtype":"I16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"F4","shape":[4],"data_offsets":[2,4]}}`, "1234"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.ReadArray("a")
	refused(t, err, "a: dtype is I16; F16, BF16, F32, F64, I8, I32, I64, U8 or BOOL is needed")
	_, err = f.ReadArray("b")
	refused(t, err, "b: dtype is F4; F16, BF16, F32, F64, I8, I32, I64, U8 or BOOL is needed")
}

func TestRefuses(t *testing.T) {
	most := strconv.Itoa(math.MaxInt)
	tests := []struct{ name, file, want string }{
		{"nothing", "", "it has 0 bytes"},
		{"too short", "1234567", "it has 7 bytes"},
		{"length", "\xff\xff\xff\xff\xff\xff\xff\xff", "header of 18446744073709551615 bytes, at most 100000000 are read"},
		{"beyond the end", "\x03\x00\x00\x00\x00\x00\x00\x00{}", "header of 3 bytes is beyond the end of the file, which has 10"},
		{"no header", file("", ""), "ends early"},
		{"other JSON", file(`[]`, ""), "is array, needs an object"},
		{"half", file(`{"q":`, ""), "ends early"},
		{"broken", file(`{"q" 1}`, ""), "at byte 5"},
		{"two values", file(`{}{}`, ""), "more follows the JSON value"},
		{"not UTF-8", file("{\"\xff\":1}", ""), "not UTF-8"},
		{"number for a tensor", file(`{"q":1}`, ""), "q: is number, needs an object"},
		{"null for a tensor", file(`{"q":null}`, ""), "q: dtype, shape and data_offsets are needed"},
		{"metadata not text", file(`{"__metadata__":{"step":7}}`, ""), "__metadata__: step: is number, needs a string"},
		{"metadata twice", file(`{"__metadata__":{"a":"b","a":"c"}}`, ""), "__metadata__.a: the key appears twice"},
		{"tensor twice", file(`{"q":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"q":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, ""), "q: the key appears twice"},
		{"field twice", file(`{"q":{"dtype":"U8","dtype":"U8","data_offsets":[0,0]}}`, ""), "q.dtype: the key appears twice"},
		{"field missing", file(`{"q":{"dtype":"U8","data_offsets":[0,0]}}`, ""), "q: dtype, shape and data_offsets are needed"},
		{"case of a field", file(`{"q":{"DType":"U8","shape":[0],"data_offsets":[0,0]}}`, ""), "q: dtype, shape and data_offsets are needed"},
		{"dtype", file(one(`7`, `[0]`, `[0,0]`), ""), "q: dtype: is number, needs a string"},
		{"shape", file(one(`"U8"`, `null`, `[0,1]`), "1"), "q: dtype, shape and data_offsets are needed"},
		{"negative", file(one(`"U8"`, `[-1]`, `[0,1]`), "1"), "q: shape[0]: an integer from 0 to"},
		{"fraction", file(one(`"U8"`, `[1.0]`, `[0,1]`), "1"), "q: shape[0]: an integer from 0 to"},
		{"text in the shape", file(one(`"U8"`, `["1"]`, `[0,1]`), "1"), "q: shape[0]: an integer from 0 to "},
		{"overflow", file(one(`"F32"`, `[2147483647,2147483647]`, `[0,0]`), ""), "q: shape (2147483647, 2147483647) is too large"},
		{"one offset", file(one(`"U8"`, `[1]`, `[1]`), "1"), "q: data_offsets: begin and end are needed, it is [1]"},
		{"backwards", file(one(`"U8"`, `[1]`, `[1,0]`), "1"), "q: data_offsets: begin and end are needed, it is [1 0]"},
		{"size", file(one(`"F32"`, `[3]`, `[0,8]`), "12345678"), "q: shape [3] of F32 has 12 bytes, the data 8"},
		{"size of 16 bits", file(one(`"BF16"`, `[3]`, `[0,8]`), "12345678"), "q: shape [3] of BF16 has 6 bytes, the data 8"},
		{"bounds", file(one(`"F32"`, `[2]`, `[0,8]`), "1234567"), "q: data ends at 8, the file at 7"},
		{"far bounds", file(one(`"U8"`, "["+most+"]", "[0,"+most+"]"), "1"), "q: data ends at " + most + ", the file at 1"},
		{"rest", file(one(`"F32"`, `[2]`, `[0,8]`), "123456789"), "tensors end at 8, the file at 9"},
		{"hole in front", file(one(`"U8"`, `[1]`, `[1,2]`), "12"), "q: data begins at 1, the tensor before ends at 0"},
		{"overlap", file(`{"k":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"q":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, "123"), "q: data begins at 1, the tensor before ends at 2"},
		{"same place", file(`{"k":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"q":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, "12"), "q: data begins at 0, the tensor before ends at 2"},
		{"hole", file(`{"k":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"q":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, "123"), "q: data begins at 2, the tensor before ends at 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := open(tt.file)
			refused(t, err, tt.want)
		})
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	for n := range len(golden) {
		if _, err := open(golden[:n]); err == nil {
			t.Errorf("%d of %d bytes open without error", n, len(golden))
		}
		// The size may be wrong, too.
		if f, err := New(strings.NewReader(golden[:n]), int64(len(golden))); err == nil {
			if _, err := f.ReadArray("b"); err == nil {
				t.Errorf("the last tensor of %d of %d bytes is read without error", n, len(golden))
			}
		}
	}
}

// ranged fails on reads outside the allowed range.
type ranged struct {
	io.ReaderAt
	from, to int64
}

func (s *ranged) ReadAt(b []byte, at int64) (int, error) {
	if at < s.from || at+int64(len(b)) > s.to {
		return 0, errors.New("not to be read")
	}
	return s.ReaderAt.ReadAt(b, at)
}

func TestOtherTensorsAreNotRead(t *testing.T) {
	size := int64(len(golden))
	start := int64(8 + 0xc8)
	r := &ranged{strings.NewReader(golden), 0, start}
	f, err := New(r, size)
	if err != nil {
		t.Fatal(err)
	}
	r.from, r.to = start+14, size
	if _, err := f.ReadArray("b"); err != nil {
		t.Error(err)
	}
	_, err = f.ReadArray("w")
	refused(t, err, "w: not to be read")
}

func tensors(t testing.TB) []*array.Array {
	return []*array.Array{
		must(t, "layers.0.wq", []float32{1, float32(math.NaN()), 3, 4, 5, 6}, 2, 3),
		must(t, "mask", []uint8{0, 1, 1}, 3),
		must(t, "keep", []bool{true, false, true}, 1, 3),
		must(t, "a<b&\"ö", []int32{7}),
		must(t, "moments", []float64{0.5, -0.25, 0.125}, 3),
		must(t, "step", []int64{math.MinInt64}),
		must(t, "nothing", []float32{}, 5, 0),
	}
}

func TestWrittenTensorsAreReadBack(t *testing.T) {
	list := tensors(t)
	metadata := map[string]string{"format": "pt", "config": `{"d": 8}`}
	var b, again bytes.Buffer
	if err := Write(&b, list, metadata); err != nil {
		t.Fatal(err)
	}
	reversed := slices.Clone(list)
	slices.Reverse(reversed)
	if err := Write(&again, reversed, metadata); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("the order of the tensors changes the file")
	}
	if list[0].Name != "layers.0.wq" {
		t.Error("the caller's slice is sorted")
	}
	if n := binary.LittleEndian.Uint64(b.Bytes()); n%8 != 0 {
		t.Errorf("header has %d bytes, no multiple of 8", n)
	}

	path := filepath.Join(t.TempDir(), "weights.safetensors")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := []string{"moments", "step", "a<b&\"ö", "layers.0.wq", "nothing", "keep", "mask"}; !slices.Equal(f.Names(), want) {
		t.Errorf("names are %q, want %q", f.Names(), want)
	}
	for _, tensor := range f.Tensors() {
		if size := readableTypes[tensor.DType].Size(); tensor.start%int64(size) != 0 {
			t.Errorf("%s of %s begins at %d", tensor.Name, tensor.DType, tensor.start)
		}
	}
	if !maps.Equal(f.Metadata(), metadata) {
		t.Errorf("metadata is %v", f.Metadata())
	}
	for _, want := range list {
		if got, err := f.ReadArray(want.Name); err != nil || !same(got, want) {
			t.Errorf("%s comes back as %v, %v", want.Name, got, err)
		}
	}
}

func TestWriteHasTheReferenceLayout(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, []*array.Array{must(t, "w", []float32{1, -2.5}, 1, 2), must(t, "b", []bool{true})}, nil); err != nil {
		t.Fatal(err)
	}
	want := file(`{"b":{"dtype":"BOOL","shape":[],"data_offsets":[8,9]},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}`+"   ",
		"\x00\x00\x80\x3f\x00\x00\x20\xc0\x01")
	if b.String() != want {
		t.Errorf("written:\n%q\nwant:\n%q", b.String(), want)
	}
}

func TestWriteRefuses(t *testing.T) {
	q := must(t, "q", []bool{true})
	tests := []struct {
		tensors  []*array.Array
		metadata map[string]string
		want     string
	}{
		{[]*array.Array{q, q}, nil, "q: two tensors have this name"},
		{[]*array.Array{must(t, "__metadata__", []bool{true})}, nil, `"__metadata__" cannot be the name of a tensor`},
		{[]*array.Array{must(t, "\xff", []bool{true})}, nil, "cannot be the name"},
		{[]*array.Array{{Name: "q"}}, nil, "q: dtype is DType(0)"},
		{[]*array.Array{{Name: "q", DType: array.F4, Shape: []int{-1}}}, nil, "q: shape (-1,) has a negative dimension"},
		{nil, map[string]string{"a": "\xff"}, "__metadata__: \"a\": \"\\xff\" is not UTF-8"},
	}
	for _, tt := range tests {
		var b bytes.Buffer
		refused(t, Write(&b, tt.tensors, tt.metadata), tt.want)
		if b.Len() > 0 {
			t.Errorf("%s: %d bytes are written", tt.want, b.Len())
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "none"))
	refused(t, err, "none")
	path := filepath.Join(dir, "half.safetensors")
	if err := os.WriteFile(path, []byte(golden[:99]), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	refused(t, err, "half.safetensors: header of 200 bytes is beyond the end of the file, which has 99")
}

// Every file that opens is read without a panic, and readable tensors are written and read back
// unchanged.
func FuzzNew(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(file(`{}`, "")))
	f.Add([]byte(file(one(`"F64"`, `[1,0,2]`, `[0,0]`), "")))
	f.Add([]byte(file(`{"k":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"q":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, "123")))
	var b bytes.Buffer
	if err := Write(&b, tensors(f), map[string]string{"a": "b"}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		var in *File
		var err error
		if n := check.AllocatedBytes(func() { in, err = New(bytes.NewReader(b), int64(len(b))) }); n > 4<<20+400*int64(len(b)) {
			t.Errorf("the header of %d bytes takes %d bytes of memory", len(b), n)
		}
		if err != nil {
			return
		}
		var list []*array.Array
		for _, name := range in.Names() {
			if a, err := in.ReadArray(name); err == nil {
				list = append(list, a)
			}
		}
		var again bytes.Buffer
		if err := Write(&again, list, in.Metadata()); err != nil {
			t.Fatal(err)
		}
		out, err := New(bytes.NewReader(again.Bytes()), int64(again.Len()))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range list {
			if got, err := out.ReadArray(want.Name); err != nil || !same(got, want) {
				t.Errorf("%q comes back as %v, %v", want.Name, got, err)
			}
		}
	})
}

// A stored tensor equals the tensor that is read.
func TestStoredTensorEqualsTheReadOne(t *testing.T) {
	a, err := array.New("a", []float64{1, 2, 3}, 3)
	if err != nil {
		t.Fatal(err)
	}
	b, err := array.New("b", []float32{4, 5, 6, 7}, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := Write(&file, []*array.Array{a, b}, nil); err != nil {
		t.Fatal(err)
	}
	header, err := EncodeHeader([]*array.Array{{Name: "a", DType: array.F8, Shape: []int{3}}, {Name: "b", DType: array.F4, Shape: []int{2, 2}}}, nil)
	if err != nil || !bytes.HasPrefix(file.Bytes(), header) {
		t.Errorf("the header of shapes alone is another: %v", err)
	}
	f, err := New(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.OpenStored("b")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 3)
	if err := array.ReadFloats(s, got, 1); err != nil || got[0] != 5 || got[2] != 7 {
		t.Errorf("b has %v, %v", got, err)
	}
	if _, err := f.OpenStored("c"); err == nil {
		t.Error("a tensor that is not there is stored")
	}
}

func TestHeaderNamesTypeAndShape(t *testing.T) {
	f, err := open(file(`{"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"b":{"dtype":"U64","shape":[1],"data_offsets":[12,20]}}`, strings.Repeat("x", 20)))
	if err != nil {
		t.Fatal(err)
	}
	if d, shape, err := f.ReadHeader("a"); err != nil || d != array.BF16 || !slices.Equal(shape, []int{2, 3}) {
		t.Errorf("%v %v, %v", d, shape, err)
	}
	if _, _, err := f.ReadHeader("b"); err == nil {
		t.Error("a type that cannot be read has a header")
	}
}

func TestErrorsQuoteTheBeginningOfLongNames(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	for _, header := range []string{
		`{"` + long + `":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`,
		`{"` + long + `":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`,
		`{"` + long + `":3}`,
		`{"` + long + `":{},"` + long + `":{}}`,
		`{"__metadata__":{"` + long + `":1}}`,
		`{"a":{"dtype":3,"` + long + `":4}}`,
		`{"a":{"dtype":"` + long + `","shape":"` + long + `"}}`,
	} {
		data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		data = append(append(data, header...), 0, 0, 0, 0)
		if _, err := New(bytes.NewReader(data), int64(len(data))); err == nil || len(err.Error()) > 1100 {
			t.Errorf("%.60s: %v", header, err)
		}
	}
}

// BF16 and I8 are written as they are read.
func TestNarrowTypesAreWritten(t *testing.T) {
	half, err := array.NewBF16("h", []uint16{0x3f80, 0xc020}, 2)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, []*array.Array{half, must(t, "i", []int8{-128, 0, 127}, 3, 1)}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := open(b.String())
	if err != nil {
		t.Fatal(err)
	}
	if d, _, err := f.ReadHeader("h"); err != nil || d != array.BF16 {
		t.Errorf("h is %v, %v", d, err)
	}
	if h, err := f.ReadArray("h"); err != nil || !same(h, must(t, "h", []float32{1, -2.5}, 2)) {
		t.Errorf("h is %v, %v", h, err)
	}
	if i, err := f.ReadArray("i"); err != nil || !same(i, must(t, "i", []int8{-128, 0, 127}, 3, 1)) {
		t.Errorf("i is %v, %v", i, err)
	}
}
