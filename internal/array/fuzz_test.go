package array

import (
	"archive/zip"
	"bytes"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// Every array that ReadNPY accepts is written and read back unchanged.
func FuzzReadNPY(f *testing.F) {
	f.Add([]byte(numpyF4))
	f.Add([]byte(npy(2, dict("'<i8'", "True", "()"), "12345678")))
	f.Add([]byte(npy(3, dict("'|b1'", "False", "(1, 0, 3)"), "")))
	f.Add([]byte(npy(1, dict("[('a', '<f4')]", "False", "(1,)"), "1234")))
	f.Add([]byte(npy(1, dict("'<f8'", "False", "(4294967296, 4294967296)"), "1234")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a *Array
		var err error
		if n := check.AllocatedBytes(func() { a, err = ReadNPY(bytes.NewReader(b)) }); n > 4<<20+16*int64(len(b)) {
			t.Errorf("%d bytes are read in %d bytes of memory", len(b), n)
		}
		if err != nil {
			return
		}
		comesBack(t, a)
	})
}

func FuzzNPZ(f *testing.F) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f.Add(archive(f, method, "q.npy", numpyF4, "k.npy", npy(1, dict("'|u1'", "False", "(3,)"), "\x00\x01\x02")))
		f.Add(archive(f, method, "text", "not an array", "folder/", "", ".npy", numpyF4[:99]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		z, err := NewNPZ(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		z.Limit = 1 << 20
		for _, name := range z.Names() {
			var a *Array
			var err error
			if n := check.AllocatedBytes(func() { a, err = z.ReadArray(name) }); n > 32<<20 {
				t.Errorf("%s takes %d bytes of memory, %d are allowed to it", name, n, z.Limit)
			}
			if err == nil {
				comesBack(t, a)
				if _, shape, err := z.ReadHeader(name); err != nil || !slices.Equal(shape, a.Shape) {
					t.Errorf("%s has shape %v, its header %v, %v", name, a.Shape, shape, err)
				}
			}
		}
	})
}

func comesBack(t *testing.T, a *Array) {
	var b bytes.Buffer
	if err := WriteNPY(&b, a); err != nil {
		t.Fatal(err)
	}
	again, err := ReadNPY(&b)
	if err != nil {
		t.Fatal(err)
	}
	again.Name = a.Name
	if !same(again, a) {
		t.Errorf("%v %v becomes %v %v", a.DType, a.Shape, again.DType, again.Shape)
	}
}

// Parts of a stored array are read or refused.
func FuzzStored(f *testing.F) {
	f.Add([]byte(numpyF4), int64(1), uint8(2))
	f.Add([]byte(npy(1, dict("'<f2'", "False", "(3,)"), "123456")), int64(-1), uint8(9))
	f.Add([]byte(npy(1, dict("'|b1'", "False", "(4,)"), "\x00\x01\x02\x03")), int64(4), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, at int64, n uint8) {
		var s *StoredArray
		var err error
		if n := check.AllocatedBytes(func() { s, err = OpenStoredNPY("a", bytes.NewReader(b), int64(len(b))) }); n > 4<<20+16*int64(len(b)) {
			t.Errorf("%d bytes are opened in %d bytes of memory", len(b), n)
		}
		if err != nil || n == 0 {
			return
		}
		whole, err := ReadNPY(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("a stored array, read as a whole: %v", err)
		}
		if s.DType == U1 || s.DType == Bool {
			dst := make([]bool, n)
			if ReadBools(s, dst, at) != nil {
				return
			}
			all, err := whole.Bool()
			if err != nil || !slices.Equal(dst, all[at:][:n]) {
				t.Errorf("elements from %d on are %v of %v, %v", at, dst, all, err)
			}
			return
		}
		_ = ReadFloats(s, make([]float32, n), at)
		dst := make([]float64, n)
		if ReadFloats(s, dst, at) != nil {
			return
		}
		all, err := whole.Float64()
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range dst {
			if want := all[at+int64(i)]; x != want && (x == x || want == want) {
				t.Errorf("element %d is %v, %v in the whole", at+int64(i), x, want)
			}
		}
	})
}
