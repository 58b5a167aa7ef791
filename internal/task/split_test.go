package task

import (
	"fmt"
	"slices"
	"testing"
)

// classCounts returns the items of each class by split.
func classCounts(splits []Split, classes []int32) map[int32][3]int {
	counts := map[int32][3]int{}
	for i, split := range splits {
		n := counts[classes[i]]
		n[split]++
		counts[classes[i]] = n
	}
	return counts
}

func TestSplitHoldsOutATenthOfEachClass(t *testing.T) {
	for _, sizes := range [][]int{{2400}, {1000, 1400}, {7, 93, 500}, {1, 2, 3, 4, 5}, {11, 11, 11, 11, 11, 11, 11, 11, 11, 11}, {1, 0, 1}, {387, 41, 42, 44, 191}} {
		var classes []int32
		total, small := 0, 0
		for c, n := range sizes {
			for range n {
				classes = append(classes, int32(c))
			}
			if total += n; n < 20 {
				small++
			}
		}
		for seed := range uint64(5) {
			splits := splitter{seed: seed}.split(classes)
			if !slices.Equal(splits, (splitter{seed: seed}).split(classes)) {
				t.Fatalf("%v: seed %d divides twice", sizes, seed)
			}
			var sum [3]int
			for c, n := range classCounts(splits, classes) {
				size := sizes[c]
				for split := range sum {
					sum[split] += n[split]
				}
				name := fmt.Sprintf("%v, seed %d, class %d", sizes, seed, c)
				if n[Train] == 0 || size > 1 && n[Test] == 0 {
					t.Errorf("%s: parts are %v", name, n)
				}
				for _, held := range []int{n[Valid], n[Test]} {
					if held > max(1, size/10+1) || size >= 20 && held < size/10 {
						t.Errorf("%s: parts are %v", name, n)
					}
				}
			}
			for _, held := range []int{sum[Valid], sum[Test]} {
				if most := (total+5)/10 + small; held > most || small == 0 && held != (total+5)/10 {
					t.Errorf("%v, seed %d: parts are %v", sizes, seed, sum)
				}
			}
		}
	}
}

func TestSplitDependsOnSeed(t *testing.T) {
	classes := make([]int32, 4000)
	for _, isDrawn := range []bool{false, true} {
		a, b := splitter{1, isDrawn}.split(classes), splitter{2, isDrawn}.split(classes)
		same := 0
		for i := range a {
			if a[i] == b[i] {
				same++
			}
		}
		// Independent draws agree with probability 0.66.
		if same < 2500 || same > 2800 {
			t.Errorf("drawn %t: %d of %d items are in the same part with another seed", isDrawn, same, len(classes))
		}
		counts := classCounts(a, classes)[0]
		if counts[Train] < 3100 || counts[Train] > 3300 || counts[Valid] < 330 || counts[Valid] > 470 {
			t.Errorf("drawn %t: %v", isDrawn, counts)
		}
	}
}

// Runs of earlier versions keep their parts.
func TestDrawnSplitsStay(t *testing.T) {
	got := ""
	for _, split := range (splitter{1, true}).split(make([]int32, 40)) {
		got += fmt.Sprint(int(split))
	}
	if want := "0000000000020020000000001020000001001000"; got != want {
		t.Errorf("parts are %s, were %s", got, want)
	}
}
