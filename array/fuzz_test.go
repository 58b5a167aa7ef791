package array

import (
	"archive/zip"
	"bytes"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// Whatever ReadNPY accepts has to survive being written and read again.
func FuzzReadNPY(f *testing.F) {
	f.Add([]byte(numpyF4))
	f.Add([]byte(npy(2, dict("'<i8'", "True", "()"), "12345678")))
	f.Add([]byte(npy(3, dict("'|b1'", "False", "(1, 0, 3)"), "")))
	f.Add([]byte(npy(1, dict("[('a', '<f4')]", "False", "(1,)"), "1234")))
	f.Add([]byte(npy(1, dict("'<f8'", "False", "(4294967296, 4294967296)"), "1234")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a *Array
		var err error
		if n := check.Allocated(func() { a, err = ReadNPY(bytes.NewReader(b)) }); n > 4<<20+16*int64(len(b)) {
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
			if n := check.Allocated(func() { a, err = z.Array(name) }); n > 32<<20 {
				t.Errorf("%s takes %d bytes of memory, %d are allowed to it", name, n, z.Limit)
			}
			if err == nil {
				comesBack(t, a)
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
