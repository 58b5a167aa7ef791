package array

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var _ Source = (*File)(nil)

// archive zips alternating names and contents.
func archive(t testing.TB, method uint16, members ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		w, err := z.CreateHeader(&zip.FileHeader{Name: members[i], Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, members[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func openBytes(t *testing.T, b []byte) *File {
	t.Helper()
	f, err := NewNPZ(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNPZReadsWhatIsAskedFor(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f := openBytes(t, archive(t, method,
			"v.npy", numpyF4,
			"half.npy", npy(1, dict("'<f2'", "False", "(2,)"), "\x00\x3c\x00\xc1"),
			"folder/", "",
			"folder/q.npy", npy(1, dict("'|u1'", "False", "(2,)"), "\x01\x00"),
			"README", "not an array",
		))
		if got, want := f.Names(), []string{"v", "half", "folder/q", "README"}; !slices.Equal(got, want) {
			t.Errorf("names are %q, want %q", got, want)
		}
		v, err := f.ReadArray("v")
		if err != nil {
			t.Fatal(err)
		}
		if v.Name != "v" || v.DType != F4 || !reflect.DeepEqual(v.Shape, []int{2, 3}) {
			t.Errorf("v is %q %v %v", v.Name, v.DType, v.Shape)
		}
		if q, err := f.ReadArray("folder/q"); err != nil || !same(q, must(t, "folder/q", []uint8{1, 0}, 2)) {
			t.Errorf("folder/q is %v, %v", q, err)
		}
		if half, err := f.ReadArray("half"); err != nil || !same(half, must(t, "half", []float32{1, -2.5}, 2)) {
			t.Errorf("half is %v, %v", half, err)
		}
		_, err = f.ReadArray("README")
		refused(t, err, "README: not in .npy format")
		_, err = f.ReadArray("k")
		refused(t, err, "k: no such array")
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNPZRefuses(t *testing.T) {
	_, err := NewNPZ(strings.NewReader(numpyF4), int64(len(numpyF4)))
	refused(t, err, "not a readable .npz")

	b := archive(t, zip.Store, "q.npy", numpyF4, "k.npy", "", "q.npy", numpyF4)
	_, err = NewNPZ(bytes.NewReader(b), int64(len(b)))
	refused(t, err, "q: two arrays have this name")

	for _, method := range []uint16{zip.Store, zip.Deflate} {
		f := openBytes(t, archive(t, method, "short.npy", numpyF4[:140], "long.npy", numpyF4+"x", "empty.npy", ""))
		_, err = f.ReadArray("short")
		refused(t, err, "short: truncated: 12 of 24 bytes")
		_, err = f.ReadArray("long")
		refused(t, err, "long: bytes follow the data of shape (2, 3)")
		_, err = f.ReadArray("empty")
		refused(t, err, "empty: truncated in the .npy header")
	}
}

func TestNPZChecksumIsCompared(t *testing.T) {
	b := archive(t, zip.Store, "q.npy", numpyF4)
	b[bytes.Index(b, []byte("\xcd\xcc\xcc\x3d"))] ^= 1
	_, err := openBytes(t, b).ReadArray("q")
	refused(t, err, "q: zip: checksum error")
}

func TestNPZRefusesUnknownCompression(t *testing.T) {
	b := archive(t, zip.Store, "q.npy", numpyF4)
	// The method stands 10 bytes into the record of the central directory.
	b[bytes.Index(b, []byte("PK\x01\x02"))+10] = 14
	_, err := openBytes(t, b).ReadArray("q")
	refused(t, err, "q: zip: unsupported compression algorithm")
}

func TestNPZRefusesTruncatedArchives(t *testing.T) {
	whole := archive(t, zip.Deflate, "q.npy", numpyF4, "k.npy", numpyF4)
	for n := range whole {
		if _, err := NewNPZ(bytes.NewReader(whole[:n]), int64(n)); err == nil {
			t.Errorf("%d of %d bytes open without error", n, len(whole))
		}
	}
}

func TestNPZLimit(t *testing.T) {
	const n = 1 << 20
	zeros := string(make([]byte, n))
	b := archive(t, zip.Deflate, "bomb.npy", npy(1, dict("'|u1'", "False", fmt.Sprintf("(%d,)", n)), zeros))
	if len(b) > n/100 {
		t.Fatalf("the archive has %d bytes", len(b))
	}
	f := openBytes(t, b)
	f.Limit = n - 1
	_, err := f.ReadArray("bomb")
	refused(t, err, "bomb: shape (1048576,) has 1048576 bytes of data, the limit is 1048575")
	f.Limit = n
	if _, err := f.ReadArray("bomb"); err != nil {
		t.Error(err)
	}
	f = openBytes(t, archive(t, zip.Store, "wide.npy", npy(1, dict("'<f8'", "False", "(2,)"), string(make([]byte, 16)))))
	f.Limit = 15
	_, err = f.ReadArray("wide")
	refused(t, err, "wide: shape (2,) has 16 bytes of data, the limit is 15")
}

// A shape larger than the member is not allocated.
func TestPromisesCostNothing(t *testing.T) {
	f := openBytes(t, archive(t, zip.Deflate, "q.npy", npy(1, dict("'<f8'", "False", "(100000000,)"), "")))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := f.ReadArray("q")
	runtime.ReadMemStats(&after)
	refused(t, err, "q: truncated: 0 of 800000000 bytes")
	if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
		t.Errorf("800 MB promised cost %d bytes", got)
	}
}

func TestWriteNPZIsReproducible(t *testing.T) {
	arrays := []*Array{
		must(t, "v", []float32{1, 2, 3, 4, 5, 6}, 2, 3),
		must(t, "q", []float64{0.5}),
		must(t, "größe", []int64{-7, 7}, 2),
		must(t, "n.npy", []int32{}, 0, 5),
		must(t, "mask", []uint8{0, 1, 1}, 3),
		must(t, "keep", []bool{true, false, true}, 1, 3),
	}
	var b, again bytes.Buffer
	if err := WriteNPZ(&b, arrays); err != nil {
		t.Fatal(err)
	}
	if err := WriteNPZ(&again, arrays); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("two files of the same arrays differ")
	}

	path := filepath.Join(t.TempDir(), "out.npz")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := OpenNPZ(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := f.Names()
	if len(names) != len(arrays) {
		t.Fatalf("names are %q", names)
	}
	for i, a := range arrays {
		if got, err := f.ReadArray(names[i]); err != nil || !same(got, a) {
			t.Errorf("%s comes back as %v, %v", a.Name, got, err)
		}
	}
}

func TestWriteNPZRefuses(t *testing.T) {
	q := must(t, "q", []bool{true})
	refused(t, WriteNPZ(io.Discard, []*Array{q, q}), "q: two arrays have this name")
	refused(t, WriteNPZ(io.Discard, []*Array{must(t, "", []bool{true})}), "no name")
	refused(t, WriteNPZ(io.Discard, []*Array{{Name: "k"}}), "k: dtype")
}

func TestOpenNPZRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenNPZ(filepath.Join(dir, "none.npz"))
	refused(t, err, "none.npz")
	path := filepath.Join(dir, "text.npz")
	if err := os.WriteFile(path, []byte("not an archive"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = OpenNPZ(path)
	refused(t, err, "text.npz: not a readable .npz")
}

// All arrays of numpy's files are read and written back byte for byte.
func TestNumpyFilesAreWrittenBackUnchanged(t *testing.T) {
	folder := filepath.Join("..", "..", "..", "shared", "fixtures", "poly")
	path := filepath.Join(folder, "dropout_masks_N7_D8.npz")
	if _, err := os.Stat(path); err != nil {
		t.Skip("the reference files are not here")
	}
	f, err := OpenNPZ(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()

	if got := f.Names(); len(got) != 35 || !slices.Equal(got[:5], []string{"q", "k", "v", "do", "rate"}) {
		t.Errorf("%d names, %q", len(got), got)
	}
	for i, name := range f.Names() {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := WriteNPY(&b, a); err != nil {
			t.Fatal(err)
		}
		r, err := z.File[i].Open()
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s is not written as numpy wrote it", name)
		}
	}

	rate, err := f.ReadArray("rate")
	if err != nil {
		t.Fatal(err)
	}
	if x, err := rate.Float64(); err != nil || !slices.Equal(x, []float64{0.25}) || !slices.Equal(rate.Shape, []int{1}) {
		t.Errorf("rate is %v of shape %v, %v", x, rate.Shape, err)
	}
	mask, err := f.ReadArray("mask_qtok")
	if err != nil {
		t.Fatal(err)
	}
	if x, err := mask.Bool(); err != nil || !slices.Equal(x, []bool{true, false, true, true, true, true, true}) {
		t.Errorf("mask_qtok is %v of shape %v, %v", x, mask.Shape, err)
	}
	q, err := f.ReadArray("q")
	if err != nil {
		t.Fatal(err)
	}
	if x, err := q.Float32(); err != nil || !reflect.DeepEqual(q.Shape, []int{7, 8}) || x[0] != 0.4045271873474121 || x[55] != 0.8246491551399231 {
		t.Errorf("q is %v of shape %v, %v", x, q.Shape, err)
	}
}
