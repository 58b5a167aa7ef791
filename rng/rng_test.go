package rng

import (
	"fmt"
	"math"
	"testing"
)

// The known answers of the paper's reference implementation.
func TestPhiloxGivesTheKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		ctr    [4]uint32
		k0, k1 uint32
		want   [4]uint32
	}{
		{[4]uint32{}, 0, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)}, ^uint32(0), ^uint32(0),
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
	} {
		if got := philox4x32(c.ctr, c.k0, c.k1); got != c.want {
			t.Errorf("philox(%x) = %x, want %x", c.ctr, got, c.want)
		}
	}
}

func TestNumbersHaveTheirMoments(t *testing.T) {
	const n = 1 << 16
	k := New(7)
	var u, s, ss float64
	for i := range uint64(n) {
		u += k.Float64(i)
		x := k.Normal(i)
		s += x
		ss += x * x
	}
	// Five standard deviations of each mean.
	sd := 5 / math.Sqrt(n)
	if d := u/n - 0.5; math.Abs(d) > sd/math.Sqrt(12) {
		t.Errorf("uniform mean is off by %g", d)
	}
	if math.Abs(s/n) > sd || math.Abs(ss/n-1) > sd*math.Sqrt2 {
		t.Errorf("normal mean %g, second moment %g", s/n, ss/n)
	}
}

func TestFoldGivesDistinctStreams(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(8) {
		for i := range uint64(8) {
			for j := range uint64(8) {
				x := New(seed).Fold(i).Uint64(j)
				if seen[x] {
					t.Fatalf("seed %d, fold %d, number %d repeats", seed, i, j)
				}
				seen[x] = true
			}
		}
	}
}

// changed returns keys that differ from k in one word.
func changed(k Key) []Key {
	return []Key{{k.k0 ^ 1, k.k1, k.stream}, {k.k0, k.k1 ^ 1, k.stream}, {k.k0, k.k1, k.stream ^ 1}}
}

func TestFoldDependsOnEveryWord(t *testing.T) {
	k, i := Key{3, 5, 7}, uint64(11)
	want := k.Fold(i)
	for _, other := range changed(k) {
		if other.Fold(i) == want {
			t.Errorf("%v and %v have the same fold", k, other)
		}
	}
	for _, j := range []uint64{i ^ 1, i ^ 1<<32, i ^ 1<<63} {
		if k.Fold(j) == want {
			t.Errorf("folds %d and %d are the same", i, j)
		}
	}
}

func TestNumbersDependOnEveryWord(t *testing.T) {
	k, i := Key{3, 5, 7}, uint64(11)
	for name, number := range map[string]func(Key, uint64) uint64{
		"Uint64":  Key.Uint64,
		"Uint32s": func(k Key, i uint64) uint64 { x := k.Uint32s(i); return uint64(x[3])<<32 | uint64(x[2]) },
		"Normal":  func(k Key, i uint64) uint64 { return math.Float64bits(k.Normal(i)) },
	} {
		want := number(k, i)
		for _, other := range changed(k) {
			if number(other, i) == want {
				t.Errorf("%s: %v and %v have the same number", name, k, other)
			}
		}
		for _, j := range []uint64{i ^ 1, i ^ 1<<32, i ^ 1<<63} {
			if number(k, j) == want {
				t.Errorf("%s: numbers %d and %d are the same", name, i, j)
			}
		}
	}
}

func ExampleKey() {
	k := New(1).Fold(3)
	backwards := []int{k.Intn(2, 100), k.Intn(1, 100), k.Intn(0, 100)}
	fmt.Println(backwards[2] == k.Intn(0, 100), k.Fold(1) == k.Fold(2))
	// Output: true false
}

func TestUint32sBeginAsUint64(t *testing.T) {
	k := New(5).Fold(3)
	for i := range uint64(100) {
		x := k.Uint32s(i)
		if k.Uint64(i) != uint64(x[1])<<32|uint64(x[0]) {
			t.Fatalf("number %d: words %x are not those of Uint64", i, x)
		}
		if x[0] == x[2] || x[1] == x[3] {
			t.Fatalf("number %d: words %x repeat", i, x)
		}
	}
}
