package array

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// numpyF4 is what numpy.save writes for
// numpy.array([[1, -2.5, 0], [0.1, inf, 3e-45]], dtype="<f4").
const numpyF4 = "\x93NUMPY\x01\x00\x76\x00" +
	"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" +
	"                                                          \n" +
	"\x00\x00\x80\x3f\x00\x00\x20\xc0\x00\x00\x00\x00" +
	"\xcd\xcc\xcc\x3d\x00\x00\x80\x7f\x02\x00\x00\x00"

// npy returns a file with a header of any version.
func npy(major byte, header, data string) string {
	b := append([]byte(npyMagic), major, 0)
	if major == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return string(b) + header + data
}

// dict returns numpy's header without padding.
func dict(descr, order, shape string) string {
	return fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape)
}

func TestReadNumpyBytes(t *testing.T) {
	a, err := ReadNPY(strings.NewReader(numpyF4))
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Float32()
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{1, -2.5, 0, 0.1, float32(math.Inf(1)), 2 * math.SmallestNonzeroFloat32}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(a.Shape, []int{2, 3}) {
		t.Errorf("shape %v, data %v, want %v", a.Shape, got, want)
	}

	var b bytes.Buffer
	if err := WriteNPY(&b, a); err != nil {
		t.Fatal(err)
	}
	if b.String() != numpyF4 {
		t.Errorf("written:\n%q\nnumpy:\n%q", b.String(), numpyF4)
	}
}

func TestReadNPYAcceptsAllVersions(t *testing.T) {
	tests := []struct {
		name, file string
		want       *Array
	}{
		{"version 2", npy(2, dict("'<i4'", "False", "(2,)"), "\x01\x00\x00\x00\xff\xff\xff\xff"), must(t, "", []int32{1, -1}, 2)},
		{"version 3", npy(3, dict("'|u1'", "False", "(1, 2)"), "\x01\xff"), must(t, "", []uint8{1, 255}, 1, 2)},
		{"scalar", npy(1, dict("'<i8'", "False", "()"), "\x07\x00\x00\x00\x00\x00\x00\x80"), must(t, "", []int64{7 + math.MinInt64})},
		{"bool of odd bytes", npy(1, dict("'|b1'", "False", "(3,)"), "\x00\x01\x02"), must(t, "", []bool{false, true, true}, 3)},
		{"empty", npy(1, dict("'<f8'", "False", "(5, 0)"), ""), must(t, "", []float64{}, 5, 0)},
		{"Fortran vector", npy(1, dict("'<f8'", "True", "(1,)"), "\x00\x00\x00\x00\x00\x00\xf0\x3f"), must(t, "", []float64{1}, 1)},
		{"order of a single byte", npy(1, dict("'<u1'", "False", "(1,)"), "\x05"), must(t, "", []uint8{5}, 1)},
		{"other spelling", npy(1, `{"shape":( 1 ,2),"fortran_order" :False,"descr":"|u1"}`, "\x05\x06"), must(t, "", []uint8{5, 6}, 1, 2)},
		{"empty dimensions", npy(1, dict("'|u1'", "False", "(0, 7)"), ""), must(t, "", []uint8{}, 0, 7)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// One byte at a time, with a rest that is not to be read.
			r := strings.NewReader(tt.file + "rest")
			a, err := ReadNPY(iotest.OneByteReader(r))
			if err != nil {
				t.Fatal(err)
			}
			if !same(a, tt.want) {
				t.Errorf("read %v %v %v, want %v %v %v", a.DType, a.Shape, a.data, tt.want.DType, tt.want.Shape, tt.want.data)
			}
			if r.Len() != len("rest") {
				t.Errorf("%d bytes left, want 4", r.Len())
			}
		})
	}
}

// TestOrderAndEndianOfNPYAreRewritten reads the numbers 1 to 12 as [2,3,2] in every layout, whole, in a
// zip archive and in parts.
func TestOrderAndEndianOfNPYAreRewritten(t *testing.T) {
	want := make([]float32, 12)
	for i := range want {
		want[i] = float32(i + 1)
	}
	for _, kind := range []string{"'<f4'", "'>f4'"} {
		for _, fortran := range []string{"False", "True"} {
			data := make([]byte, 4*len(want))
			for i := range want {
				at := i
				if fortran == "True" { // of the place [i0,i1,i2]
					at = i/6 + i/2%3*2 + i%2*6
				}
				bits := math.Float32bits(want[i])
				if kind == "'<f4'" {
					binary.LittleEndian.PutUint32(data[4*at:], bits)
				} else {
					binary.BigEndian.PutUint32(data[4*at:], bits)
				}
			}
			file := npy(1, dict(kind, fortran, "(2, 3, 2)"), string(data))
			a, err := ReadNPY(strings.NewReader(file + "rest"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := a.Float32()
			if err != nil || !slices.Equal(got, want) || !slices.Equal(a.Shape, []int{2, 3, 2}) {
				t.Errorf("%s, Fortran order %s: %v %v, %v", kind, fortran, a.Shape, got, err)
			}
			var b bytes.Buffer
			z := zip.NewWriter(&b)
			w, err := z.Create("x.npy")
			if err == nil {
				_, err = w.Write([]byte(file))
			}
			if err := errors.Join(err, z.Close()); err != nil {
				t.Fatal(err)
			}
			f, err := NewNPZ(bytes.NewReader(b.Bytes()), int64(b.Len()))
			if err != nil {
				t.Fatal(err)
			}
			if a, err = f.ReadArray("x"); err != nil {
				t.Fatal(err)
			}
			if got, err = a.Float32(); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, Fortran order %s: in a zip archive %v, %v", kind, fortran, got, err)
			}
			s, err := OpenStoredNPY("x", strings.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			part := make([]float32, 4)
			if err := ReadFloats(s, part, 5); err != nil || !slices.Equal(part, want[5:9]) {
				t.Errorf("%s, Fortran order %s: a part is %v, %v", kind, fortran, part, err)
			}
		}
	}
}

func TestReadNPYRefuses(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"nothing", "", "truncated in the .npy header"},
		{"other format", "PK\x03\x04\x00\x00\x00\x00\x00\x00", `not in .npy format: it begins with "PK`},
		{"version", npy(4, dict("'<f4'", "False", "(1,)"), "1234"), ".npy version is 4.0"},
		{"long header", npyMagic + "\x02\x00\xff\xff\xff\xff{", "header has 4294967295 bytes"},
		{"long double", npy(1, dict("'<f16'", "False", "(1,)"), ""), "dtype <f16 is not read"},
		{"objects", npy(1, dict("'|O'", "False", "(1,)"), "\x80\x04"), "dtype |O is pickled Python objects"},
		{"complex", npy(1, dict("'<c16'", "False", "(1,)"), ""), "dtype <c16 is complex"},
		{"text", npy(1, dict("'<U3'", "False", "(1,)"), ""), "dtype <U3 is text"},
		{"void", npy(1, dict("'|V8'", "False", "(1,)"), ""), "dtype |V8 is structured"},
		{"record", npy(1, dict("[('a', '<f4'), ('b', '<i8')]", "False", "(1,)"), ""), "dtype is structured"},
		{"unsigned", npy(1, dict("'<u4'", "False", "(1,)"), ""), "dtype <u4 is not read; f2, f4, f8, i4, i8, u1 or bool is needed"},
		{"no type", npy(1, dict("''", "False", "(1,)"), ""), `dtype is ""`},
		{"odd order", npy(1, dict("'!f4'", "False", "(1,)"), ""), `dtype is "!f4"`},
		{"Fortran order that ends", npy(1, dict("'<f4'", "True", "(1, 2)"), "1234"), "truncated: 4 of 8 bytes"},
		{"big-endian that ends", npy(1, dict("'>f4'", "False", "(2,)"), "1234"), "truncated: 4 of 8 bytes"},
		{"negative", npy(1, dict("'<f4'", "False", "(-1,)"), ""), "not a dictionary"},
		{"huge dimension", npy(1, dict("'<f4'", "False", "(99999999999999999999,)"), ""), "not a dictionary"},
		{"overflow", npy(1, dict("'<f4'", "False", "(2147483647, 2147483647)"), ""), "shape (2147483647, 2147483647) is too large"},
		{"more than there is", npy(1, dict("'<f4'", "False", "(10000, 10000)"), "1234"), "truncated: 4 of 400000000 bytes"},
		{"dimensions", npy(1, dict("'<f4'", "False", "("+strings.Repeat("1,", 65)+")"), ""), "shape has 65 dimensions"},
		{"missing key", npy(1, "{'descr': '<f4', 'shape': (1,)}", "1234"), "not a dictionary"},
		{"key twice", npy(1, "{'shape': (), 'shape': (), 'descr': '<f4', 'fortran_order': False}", "1234"), "not a dictionary"},
		{"unknown key", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", "1234"), "not a dictionary"},
		{"no end", npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (", "1234"), "not a dictionary"},
		{"more text", npy(1, dict("'<f4'", "False", "()")+"x", "1234"), "not a dictionary"},
		{"no comma", npy(1, "{'descr': '<f4' 'fortran_order': False, 'shape': ()}", "1234"), "not a dictionary"},
		{"no number", npy(1, dict("'<f4'", "False", "(,)"), "1234"), "not a dictionary"},
		{"not a bool", npy(1, dict("'<f4'", "None", "()"), "1234"), "not a dictionary"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadNPY(strings.NewReader(tt.file))
			refused(t, err, tt.want)
		})
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	for n := range len(numpyF4) {
		if _, err := ReadNPY(strings.NewReader(numpyF4[:n])); err == nil {
			t.Errorf("%d of %d bytes are read without error", n, len(numpyF4))
		}
	}
}

func TestReadErrorIsKept(t *testing.T) {
	failure := errors.New("disk on fire")
	for _, n := range []int{0, 7, 9, 50, 130} {
		r := iotest.DataErrReader(strings.NewReader(numpyF4[:n]))
		_, err := ReadNPY(readers{r, iotest.ErrReader(failure)})
		if !errors.Is(err, failure) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// readers continues with the second reader at the end of the first.
type readers [2]io.Reader

func (r readers) Read(b []byte) (int, error) {
	if n, _ := r[0].Read(b); n > 0 {
		return n, nil
	}
	return r[1].Read(b)
}

func TestWriteNPYAligns(t *testing.T) {
	shape := []int{}
	for range maxDims {
		a := must(t, "", []uint8{9}, shape...)
		var b bytes.Buffer
		if err := WriteNPY(&b, a); err != nil {
			t.Fatal(err)
		}
		if n := b.Len() - 1; n%npyAlign != 0 || b.Bytes()[n-1] != '\n' {
			t.Errorf("%d dimensions: header of %d bytes ends in %q", len(shape), n, b.Bytes()[n-1])
		}
		got, err := ReadNPY(&b)
		if err != nil || !same(got, a) {
			t.Errorf("%d dimensions do not come back: %v", len(shape), err)
		}
		shape = append(shape, 1)
	}
}
