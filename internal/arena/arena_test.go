package arena

import (
	"testing"
	"unsafe"
)

func TestTakeIsAlignedAndDisjoint(t *testing.T) {
	a := new(Arena)
	for round := range 3 {
		a.Reset(0)
		var taken [][]float32
		for n := 1; n < 500; n += 37 {
			s := Take[float32](a, n)
			if len(s) != n {
				t.Fatalf("asked for %d elements, got %d", n, len(s))
			}
			if uintptr(unsafe.Pointer(&s[0]))%64 != 0 {
				t.Errorf("round %d: %d elements are not aligned to a cache line", round, n)
			}
			for i := range s {
				s[i] = float32(n)
			}
			taken = append(taken, s)
		}
		for _, s := range taken {
			for i := range s {
				if s[i] != float32(len(s)) {
					t.Fatalf("slices of %d elements overlap another", len(s))
				}
			}
		}
	}
}

func TestReleaseGrowsTheSlab(t *testing.T) {
	a := new(Arena)
	Take[float64](a, 10)
	Take[float64](a, 1<<16)
	if len(a.fullSlabs) == 0 {
		t.Fatal("a slab of the first size held 64 Ki elements")
	}
	a.Release()
	Take[float64](a, 10)
	Take[float64](a, 1<<16)
	if len(a.fullSlabs) != 0 {
		t.Errorf("the slab did not grow to what was used: %d before it", len(a.fullSlabs))
	}
}

func TestResetGivesBack(t *testing.T) {
	a := new(Arena)
	Take[float64](a, 8)
	mark := a.Mark()
	p := &Take[float64](a, 8)[0]
	a.Reset(mark)
	if q := &Take[float64](a, 8)[0]; p != q {
		t.Error("memory after a mark is not taken again")
	}
	if s := TakeZeros[float64](a, 3); s[0] != 0 || s[1] != 0 || s[2] != 0 {
		t.Errorf("Zeros gave %v", s)
	}
	if Take[float32](a, 0) != nil {
		t.Error("no elements are not nil")
	}
}

// Memory that is taken, reset and retaken is allocated once, even if the slab is too small.
func TestTheSlabGrowsToTheMost(t *testing.T) {
	a := new(Arena)
	Take[float64](a, 10)
	again := func() {
		mark := a.Mark()
		Take[float64](a, 1<<16)
		Take[float64](a, 8)
		a.Reset(mark)
	}
	again()
	if n := testing.AllocsPerRun(100, again); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if a.Mark() != a.usedWords || len(a.fullSlabs) != 0 {
		t.Errorf("level %d with %d words used and %d slabs full after all were given back", a.Mark(), a.usedWords, len(a.fullSlabs))
	}
	a.Release()
	if n := len(a.slab); n < 1<<16+18 || n > 2<<16 {
		t.Errorf("the slab has %d words for %d", n, 1<<16+18)
	}
}

// Levels are correct over several slabs, for marks in any of them.
func TestResetOverSlabs(t *testing.T) {
	a := new(Arena)
	var marks []int
	var taken [][]float64
	for i := range 40 {
		marks = append(marks, a.Mark())
		s := Take[float64](a, 1000+i)
		for j := range s {
			s[j] = float64(i)
		}
		taken = append(taken, s)
	}
	if len(a.fullSlabs) < 2 {
		t.Fatalf("%d slabs are full", len(a.fullSlabs))
	}
	for i := len(marks) - 1; i > 0; i -= 3 {
		a.Reset(marks[i])
		if a.Mark() != marks[i] {
			t.Fatalf("level %d after a reset to %d", a.Mark(), marks[i])
		}
		fill := Take[float64](a, 5000)
		for j := range fill {
			fill[j] = -1
		}
		for k, s := range taken[:i] {
			for _, x := range s {
				if x != float64(k) {
					t.Fatalf("reset to %d: slice %d is lent twice", i, k)
				}
			}
		}
	}
}

func TestHighWater(t *testing.T) {
	HighWater()
	a, b := new(Arena), new(Arena)
	Take[float64](a, 1000)
	mark := a.Mark()
	Take[float64](a, 2000)
	a.Reset(mark)
	Take[float64](a, 1000)
	a.Release()
	Take[float64](b, 100)
	b.Release()
	if got := HighWater(); got < 8*3000 || got > 8*(3000+3*lineWords) {
		t.Errorf("3000 float64s at most have a high water of %d bytes", got)
	}
	if got := HighWater(); got != 0 {
		t.Errorf("%d bytes without a release since", got)
	}
}

func TestTakeDoesNotAllocate(t *testing.T) {
	a := new(Arena)
	Take[float32](a, 1000)
	if n := testing.AllocsPerRun(10, func() {
		mark := a.Mark()
		Take[float32](a, 100)
		a.Reset(mark)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
