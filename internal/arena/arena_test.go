package arena

import (
	"runtime/debug"
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
	if n := a.slab.size(); n < 1<<16+18 || n > 2<<16 {
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

// An arena that is made for its slices has one slab for them and no more than that.
func TestNewHasRoomForItsWords(t *testing.T) {
	for _, lines := range []int{0, 1, 7, 1000, 3 * largeWords / lineWords} {
		a := New(lines * lineWords)
		for n := lines; n > 0; n -= (n + 1) / 2 {
			Take[float64](a, (n+1)/2*lineWords)
		}
		if len(a.fullSlabs) > 0 || a.Size() != (lines+1)*lineWords {
			t.Errorf("%d lines: %d full slabs and %d words", lines, len(a.fullSlabs), a.Size())
		}
	}
}

func TestSizeCountsAllSlabs(t *testing.T) {
	a := new(Arena)
	if a.Size() != 0 {
		t.Errorf("an empty arena has %d words", a.Size())
	}
	Take[float64](a, 10)
	mark := a.Mark()
	for range 3 {
		Take[float64](a, 1<<14)
	}
	size, want := a.Size(), len(a.slab.words)
	for _, s := range a.fullSlabs {
		want += len(s.words)
	}
	if size != want || size < 3<<14+10 {
		t.Errorf("slabs of %d words count as %d", want, size)
	}
	if a.Reset(mark); a.Size() != a.slab.size()+a.spare.size() || a.spare == nil {
		t.Errorf("after a reset slabs of %d and %d words count as %d", a.slab.size(), a.spare.size(), a.Size())
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

// Large slabs serve the arenas that use them one after another, whichever these are.
func TestLargeSlabsAreShared(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // pools forget what the collector takes
	first := func(a *Arena) *float64 {
		Take[float64](a, 10)
		p := &Take[float64](a, largeWords)[0]
		a.Release()
		return p
	}
	a, b := new(Arena), new(Arena)
	shared := 0
	for range 20 { // under the race detector pools drop some slabs
		if first(a) == first(b) {
			shared++
		}
	}
	if shared == 0 {
		t.Error("a second arena has a slab of its own each time")
	}
	Take[float64](a, largeWords)
	Take[float64](b, largeWords)
	if a.slab == b.slab {
		t.Error("a slab is lent twice")
	}
}

// Slabs have room for their words, and at most a quarter more.
func TestSizesOfLargeSlabs(t *testing.T) {
	last := 0
	for words := largeWords; words < 32*largeWords; words += 1021 {
		size, number := largeSize(words)
		if size < words || size > words*5/4+lineWords || number < last || number >= len(large) {
			t.Fatalf("%d words have size %d, number %d after %d", words, size, number, last)
		}
		last = number
		if again, same := largeSize(size); again != size || same != number {
			t.Fatalf("size %d of number %d becomes %d of number %d", size, number, again, same)
		}
	}
}

// What is taken in the same order after each Acquire is allocated twice at most, whatever its sizes.
func TestArenasSettle(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // pools forget what the collector takes
	for _, sizes := range [][]int{{100}, {1 << 16, 1 << 16, 1 << 16}, {80000, 70000, 60000, 50000}, {1 << 20, 16, 1 << 20, 1 << 14}, {16, baseWords, 16, 1 << 18}} {
		a := new(Arena)
		use := func() {
			for _, n := range sizes {
				Take[float64](a, n)
			}
			a.Release()
		}
		for range 3 {
			use()
		}
		if n := testing.AllocsPerRun(20, use); n > 0 && !raced {
			t.Errorf("sizes %v: %v allocations", sizes, n)
		}
	}
}
