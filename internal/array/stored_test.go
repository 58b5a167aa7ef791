package array

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// store encodes an array as .npy and returns it as a StoredArray.
func store(t *testing.T, a *Array) *StoredArray {
	t.Helper()
	var b bytes.Buffer
	if err := WriteNPY(&b, a); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStoredNPY(a.Name, bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every part of a stored array equals that range of the decoded array.
func TestPartsOfStoredArraysEqualTheWhole(t *testing.T) {
	const n = 3*chunkElements + 7
	f4, f8, u1 := make([]float32, n), make([]float64, n), make([]uint8, n)
	for i := range n {
		f4[i], f8[i], u1[i] = float32(i)/7, -float64(i)/7, uint8(i%3)
	}
	narrow, wide, mask := store(t, must(t, "q", f4, n)), store(t, must(t, "q", f8, n)), store(t, must(t, "m", u1, n))
	for _, at := range []int{0, 1, chunkElements - 1, chunkElements + 5, n - 1} {
		for _, k := range []int{0, 1, 2, chunkElements, chunkElements + 1, n - at} {
			if at+k > n {
				continue
			}
			a, b := make([]float32, k), make([]float64, k)
			keep := make([]bool, k)
			for _, s := range []*StoredArray{narrow, wide} {
				if err := ReadFloats(s, a, int64(at)); err != nil {
					t.Fatal(err)
				}
				if err := ReadFloats(s, b, int64(at)); err != nil {
					t.Fatal(err)
				}
				for i := range k {
					want := float64(f4[at+i])
					if s == wide {
						want = f8[at+i]
					}
					if b[i] != want || a[i] != float32(want) {
						t.Fatalf("element %d is %v, %v, want %v", at+i, a[i], b[i], want)
					}
				}
			}
			if err := ReadBools(mask, keep, int64(at)); err != nil {
				t.Fatal(err)
			}
			for i := range k {
				if keep[i] != (u1[at+i] != 0) {
					t.Fatalf("element %d of the mask is %v", at+i, keep[i])
				}
			}
		}
	}
	half := "\x00\x3c\x00\xc1"
	for _, x := range []struct {
		t    DType
		want []float32
	}{{F2, []float32{1, -2.5}}, {BF16, []float32{math.Float32frombits(0x3c000000), math.Float32frombits(0xc1000000)}}} {
		s, err := NewStoredArray("h", x.t, []int{2}, strings.NewReader(half), 0, 4)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 2)
		if err := ReadFloats(s, got, 0); err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%v: %v, %v; want %v", x.t, got, err, x.want)
		}
	}
}

func TestStoredRefuses(t *testing.T) {
	q := store(t, must(t, "q", []float32{1, 2, 3}, 3))
	for _, at := range []int64{-1, 2, 4, math.MaxInt64} {
		refused(t, ReadFloats(q, make([]float32, 2), at), "q: elements ", "there are 3")
	}
	refused(t, ReadBools(q, make([]bool, 1), 0), "q: dtype is f4; u1 or bool is needed")
	refused(t, ReadFloats(store(t, must(t, "m", []uint8{1}, 1)), make([]float32, 1), 0), "m: dtype is u1; f2, bf16, f4 or f8 is needed")
	refused(t, ReadFloats(store(t, must(t, "q", []float64{1e39}, 1)), make([]float32, 1), 0), "q: an element is 1e+39, beyond the range of f4")
	_, err := NewStoredArray("q", F4, []int{3}, strings.NewReader(""), 0, 8)
	refused(t, err, "q: shape (3,) of f4 has 12 bytes, the data 8")
	_, err = NewStoredArray("q", F4, []int{math.MaxInt, 2}, strings.NewReader(""), 0, 8)
	refused(t, err, "q: shape ", "too large")
	for _, start := range []int64{-1, math.MaxInt64 - 11} {
		_, err = NewStoredArray("q", F4, []int{3}, strings.NewReader(""), start, 12)
		refused(t, err, fmt.Sprintf("q: 12 bytes of data cannot begin at byte %d", start))
	}
	_, err = OpenStoredNPY("q", strings.NewReader(numpyF4[:140]), 140)
	refused(t, err, "q: shape (2, 3) of f4 has 24 bytes, the data 12")
	_, err = OpenStoredNPY("q", strings.NewReader(numpyF4+"x"), int64(len(numpyF4)+1))
	refused(t, err, "q: shape (2, 3) of f4 has 24 bytes, the data 25")
	s, err := NewStoredArray("q", F8, []int{3}, strings.NewReader("0123456789"), 0, 24)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, ReadFloats(s, make([]float64, 2), 0), "q: truncated: 10 of 24 bytes of data")
}

func TestFolderReadsItsArrays(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"q.npy": numpyF4, "q-k.npy": numpyF4 + "x", "bad.npy": "no", "README": "no"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	f, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Names(); !slices.Equal(got, []string{"bad", "q", "q-k"}) {
		t.Errorf("names are %q", got)
	}
	a, err := f.ReadArray("q")
	if err != nil || a.Name != "q" || !slices.Equal(a.Shape, []int{2, 3}) {
		t.Errorf("q is %v, %v", a, err)
	}
	s, err := f.OpenStored("q")
	if err != nil || s.File() == nil {
		t.Fatalf("q is %v, %v", s, err)
	}
	want, err := a.Float32()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 6)
	if err := ReadFloats(s, got, 0); err != nil || !slices.Equal(got, want) {
		t.Errorf("q has %v, %v; want %v", got, err, want)
	}
	_, err = f.ReadArray("bad")
	refused(t, err, "bad: truncated")
	_, err = f.ReadArray("q-k")
	refused(t, err, "q-k: bytes follow the data of shape (2, 3)")
	_, err = f.OpenStored("bad")
	refused(t, err, "bad: truncated")
	_, err = f.OpenStored("k")
	refused(t, err, "k: no such array in the folder")
	_, err = OpenFolder(filepath.Join(dir, "none"))
	refused(t, err, "none")
}

func TestHeaderOfAFolderReadsNoData(t *testing.T) {
	dir := t.TempDir()
	// The header promises data that the file does not have.
	if err := os.WriteFile(filepath.Join(dir, "q.npy"), NPYHeader(F8, []int{2, 3}), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if dtype, shape, err := f.ReadHeader("q"); err != nil || dtype != F8 || !slices.Equal(shape, []int{2, 3}) {
		t.Errorf("%v %v, %v", dtype, shape, err)
	}
	if _, _, err := f.ReadHeader("k"); err == nil {
		t.Error("an array that is not there has a header")
	}
}
