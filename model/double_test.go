package model

import (
	"encoding/binary"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
)

var writeDouble = flag.Bool("write-double", false, "write testdata/double in a build with -tags float64")

// madeSingle is made with weights that float32 represents, the same in every build.
func madeSingle(t testing.TB, c Config) *Model {
	t.Helper()
	m, err := New(c, rng.New(3))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range m.Params().All() {
		key := rng.New(99).Fold(uint64(i))
		for j, x := range p.Data {
			p.Data[j] = float(float32(x) + float32(0.2*key.Normal(uint64(j))))
		}
	}
	return m
}

// double returns the numbers that a build with -tags float64 computed in place of got, from a
// file of testdata/double. In that build it holds the file against got. To write the files, run
//
//	go test -tags float64 ./model -run 'Double|ErrAsTheWhole' -write-double
func double(t testing.TB, name string, got []float64) []float64 {
	t.Helper()
	path := filepath.Join("testdata", "double", name)
	wide := check.Precision == "float64"
	if *writeDouble && wide {
		b, err := binary.Append(nil, binary.LittleEndian, got)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float64, len(b)/8)
	if _, err := binary.Decode(b, binary.LittleEndian, want); err != nil {
		t.Fatal(err)
	}
	if len(want) != len(got) {
		t.Fatalf("%s: %d numbers, this test has %d: renew it with -tags float64 -write-double", path, len(want), len(got))
	}
	for i, x := range want {
		if wide && !(math.Abs(got[i]-x) <= 1e-11*(1+math.Abs(x))) {
			t.Fatalf("%s: number %d is %v, computed %v", path, i, x, got[i])
		}
	}
	return want
}
